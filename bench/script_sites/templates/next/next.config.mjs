export default { output: "export", trailingSlash: false, images: { unoptimized: true } };

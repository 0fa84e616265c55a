import pages from "../../../src/site/all.json";
import { Article, metadataOf } from "../../article";

export const dynamicParams = false;
export const generateStaticParams = () =>
  Object.keys(pages).filter((slug) => slug !== "home").map((slug) => ({ slug }));
export const generateMetadata = async ({ params }) => metadataOf((await params).slug);

export default async function Page({ params }) {
  return <Article slug={(await params).slug} />;
}

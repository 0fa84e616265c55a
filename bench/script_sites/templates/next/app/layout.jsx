import Link from "next/link";
import site from "../src/site/config.json";
import "./style.css";

export default function Layout({ children }) {
  return (
    <html lang="en">
      <body>
        <header><Link href="/" prefetch={false}>{site.name}</Link></header>
        <main>{children}</main>
      </body>
    </html>
  );
}

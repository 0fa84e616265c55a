import Link from "next/link";
import pages from "../src/site/all.json";
import site from "../src/site/config.json";
import { Late } from "./late";

export const metadataOf = (slug) => ({ title: `${pages[slug].title} - ${site.name}` });

export function Article({ slug }) {
  const page = pages[slug];
  return (
    <article>
      <h1>{page.title}</h1>
      {page.paragraphs.map((text, at) => <p key={at}>{text}</p>)}
      <ul>{page.links.map(({ path, title }) => <li key={path}><Link href={path} prefetch={false}>{title}</Link></li>)}</ul>
      {site.late && <Late slug={slug} />}
    </article>
  );
}

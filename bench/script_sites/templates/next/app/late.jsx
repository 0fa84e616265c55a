"use client";

import { useEffect, useState } from "react";

export function Late({ slug }) {
  const [late, setLate] = useState();
  useEffect(() => {
    fetch(`/data/${slug}.json`).then((answer) => answer.json()).then(setLate);
  }, [slug]);
  if (!late) return <p>Loading comments</p>;
  return (
    <section>
      <h2>Comments</h2>
      {late.paragraphs.map((text, at) => <p key={at}>{text}</p>)}
      <ul>{late.links.map(({ path, title }) => <li key={path}><a href={path}>{title}</a></li>)}</ul>
    </section>
  );
}

import { useEffect, useRef, useState } from "react";
import { createRoot } from "react-dom/client";
import { BrowserRouter, HashRouter, Link, Outlet, Route, Routes, useLocation } from "react-router-dom";
import styled from "styled-components";
import site from "./site/config.json";
import { load, slugOf } from "./site/content.js";
import "./style.css";

const Article = site.styles === "script" ? styled.article`max-width: 44rem; line-height: 1.5;` : "article";

function useContent(name) {
  const [content, setContent] = useState();
  useEffect(() => {
    let isCurrent = true;
    setContent(undefined);
    if (name) load(name).then((found) => isCurrent && setContent(found ?? null));
    return () => { isCurrent = false; };
  }, [name]);
  return content;
}

function Links({ links }) {
  return <ul>{links.map(({ path, title }) => <li key={path}><Link to={path}>{title}</Link></li>)}</ul>;
}

function GrowingList() {
  const all = useContent("index")?.links ?? [];
  const [shown, setShown] = useState(8);
  const end = useRef(null);
  useEffect(() => {
    const seen = new IntersectionObserver(([entry]) => entry.isIntersecting && setShown((n) => n + 8));
    seen.observe(end.current);
    return () => seen.disconnect();
  }, [all.length, shown]);
  return <section><Links links={all.slice(0, shown)} /><div ref={end}>&nbsp;</div></section>;
}

function Page() {
  const slug = slugOf(useLocation().pathname);
  const page = useContent(slug);
  const late = useContent(site.links === "late" && page ? `${slug}-links` : undefined);
  useEffect(() => {
    if (page) document.title = `${page.title} - ${site.name}`;
  }, [page]);
  if (page === undefined) return <p>Loading</p>;
  if (page === null) return <p>There is no such page.</p>;
  return (
    <Article>
      <h1>{page.title}</h1>
      {page.paragraphs.map((text, at) => <p key={at}>{text}</p>)}
      <Links links={page.links ?? late?.links ?? []} />
      {site.links === "lazy" && <GrowingList />}
    </Article>
  );
}

function Layout() {
  return (
    <>
      <header><Link to="/">{site.name}</Link></header>
      <main><Outlet /></main>
    </>
  );
}

function Section() {
  return <section className="section"><Outlet /></section>;
}

const Router = site.routes === "hash" ? HashRouter : BrowserRouter;
createRoot(document.getElementById("root")).render(
  <Router>
    <Routes>
      <Route path="/" element={<Layout />}>
        <Route index element={<Page />} />
        <Route path=":section" element={<Section />}>
          <Route path="*" element={<Page />} />
        </Route>
      </Route>
    </Routes>
  </Router>,
);

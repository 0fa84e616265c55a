import { Component, ElementRef, effect, provideZonelessChangeDetection, signal, viewChild } from "@angular/core";
import { bootstrapApplication, Title } from "@angular/platform-browser";
import { NavigationEnd, provideRouter, Router, RouterLink, RouterOutlet, withHashLocation } from "@angular/router";
import config from "./site/config.json";
import { load, slugOf } from "./site/content.js";

interface Site { name: string; routes: string; links: string; styles: string }
interface Link { path: string; title: string }
interface Content { title: string; paragraphs: string[]; links?: Link[] }
const site = config as Site;
const read = load as (name: string) => Promise<any>;

@Component({
  selector: "app-page",
  imports: [RouterLink],
  template: `
    @if (page(); as found) {
      <article [style.max-width]="width">
        <h1>{{ found.title }}</h1>
        @for (text of found.paragraphs; track $index) { <p>{{ text }}</p> }
        <ul>@for (link of links(); track link.path) { <li><a [routerLink]="link.path">{{ link.title }}</a></li> }</ul>
        @if (all().length) {
          <ul>@for (link of all().slice(0, shown()); track link.path) { <li><a [routerLink]="link.path">{{ link.title }}</a></li> }</ul>
          <div #end>&nbsp;</div>
        }
      </article>
    } @else if (page() === null) { <p>There is no such page.</p> } @else { <p>Loading</p> }
  `,
})
class Page {
  width = site.styles === "script" ? "44rem" : null;
  page = signal<Content | null | undefined>(undefined);
  links = signal<Link[]>([]);
  all = signal<Link[]>([]);
  shown = signal(8);
  end = viewChild<ElementRef<HTMLElement>>("end");

  constructor(router: Router, private title: Title) {
    this.open(router.url);
    router.events.subscribe((event) => {
      if (event instanceof NavigationEnd) this.open(event.urlAfterRedirects);
    });
    effect((onCleanup) => {
      this.shown();
      const end = this.end();
      if (!end) return;
      const seen = new IntersectionObserver((entries) => {
        if (entries.at(-1)!.isIntersecting) this.shown.update((number) => number + 8);
      });
      seen.observe(end.nativeElement);
      onCleanup(() => seen.disconnect());
    });
  }

  private async open(url: string) {
    const slug = slugOf(url);
    const found = (await read(slug)) ?? null;
    this.page.set(found);
    if (!found) return;
    this.title.setTitle(`${found.title} - ${site.name}`);
    this.links.set(found.links ?? (await read(`${slug}-links`)).links);
    if (site.links === "lazy") this.all.set((await read("index")).links);
  }
}

@Component({ selector: "app-section", imports: [RouterOutlet], template: `<section class="section"><router-outlet /></section>` })
class Section {}

@Component({
  selector: "app-root",
  imports: [RouterLink, RouterOutlet],
  template: `<header><a routerLink="/">{{ name }}</a></header><main><router-outlet /></main>`,
})
class App {
  name = site.name;
}

const routes = [
  { path: "", component: Page, pathMatch: "full" as const },
  { path: ":section", component: Section, children: [{ path: "**", component: Page }] },
];
bootstrapApplication(App, {
  providers: [
    provideZonelessChangeDetection(),
    site.routes === "hash" ? provideRouter(routes, withHashLocation()) : provideRouter(routes),
  ],
});

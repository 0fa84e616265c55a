import { createApp, h } from "vue";
import { createRouter, createWebHashHistory, createWebHistory, RouterView } from "vue-router";
import App from "./App.vue";
import Page from "./Page.vue";
import site from "./site/config.json";
import "./style.css";

const Section = { render: () => h("section", { class: "section" }, h(RouterView)) };
const router = createRouter({
  history: site.routes === "hash" ? createWebHashHistory() : createWebHistory(),
  routes: [
    { path: "/", component: Page },
    { path: "/:section", component: Section, children: [{ path: ":rest(.*)*", component: Page }] },
  ],
});
createApp(App).use(router).mount("#app");

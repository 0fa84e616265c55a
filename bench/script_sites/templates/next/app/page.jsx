import { Article, metadataOf } from "./article";

export const generateMetadata = () => metadataOf("home");

export default function Home() {
  return <Article slug="home" />;
}

/* The OpenAPI description as a page, without anybody else's scripts. */
const kept = localStorage.getItem("fedfeast-theme");
if (kept) document.documentElement.dataset.theme = kept;

function element(name, className, ...content) {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.append(...content);
  return node;
}
function table(header, rows) {
  const head = element("tr", "", ...header.map((cell) => element("th", "", cell)));
  const body = rows.map((row) => element("tr", "", ...row.map((cell) => element("td", "", cell))));
  return element("div", "scroll", element("table", "", element("thead", "", head), element("tbody", "", ...body)));
}
function typeOf(schema = {}) {
  const parts = schema.anyOf ?? [schema];
  return parts.filter((part) => part.type !== "null").map((part) => {
    const limits = [];
    if (part.exclusiveMinimum !== undefined) limits.push(`above ${part.exclusiveMinimum}`);
    if (part.minimum !== undefined) limits.push(`from ${part.minimum}`);
    if (part.maximum !== undefined) limits.push(`to ${part.maximum}`);
    return [part.type ?? part.$ref?.split("/").at(-1) ?? "", ...limits].join(" ");
  }).join(" or ");
}
function schemaName(response) {
  const schema = Object.values(response.content ?? {})[0]?.schema;
  if (!schema) return Object.keys(response.content ?? {})[0] ?? "";
  return (schema.anyOf ?? [schema]).map((one) => one.$ref?.split("/").at(-1) ?? "").join(" or ");
}
const EXAMPLES = { "/api/choose": "?max_macs=1e6" };

function route(path, method, about) {
  const title = element("h3", "", element("span", `method ${method}`, method.toUpperCase()), path);
  const card = element("section", "card route", title, element("p", "", about.description ?? about.summary ?? ""));
  if (about.parameters?.length) {
    card.append(table(["parameter", "in", "what"], about.parameters.map((one) => [
      element("code", "", one.name), one.in, [typeOf(one.schema), one.description ?? one.schema?.description].filter(Boolean).join(". "),
    ])));
  }
  card.append(table(["answer", "what", "form"], Object.entries(about.responses).map(([code, one]) => [code, one.description, schemaName(one)])));
  if (method === "get" && !path.includes("{")) {
    const address = `${path.slice(1)}${EXAMPLES[path] ?? ""}`, link = element("a", "", new URL(address, document.baseURI).href);
    link.href = address;
    card.append(element("code", "", "curl '", link, "'"));
  }
  return card;
}

const description = await (await fetch("openapi.json")).json();
document.getElementById("about").textContent = `${description.info.summary} Version ${description.info.version}.`;
document.getElementById("routes").replaceChildren(...Object.entries(description.paths).flatMap(([path, methods]) =>
  Object.entries(methods).filter(([method]) => method !== "head").map(([method, about]) => route(path, method, about))));

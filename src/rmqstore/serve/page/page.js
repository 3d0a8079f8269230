// Asks the server for its figures once a second, and shows them. What comes from messages is only
// ever the text of a node, never markup.
"use strict";

const EVERY = 1000; // ms
const FEW_EXPIRING = 5; // groups that are warned of
const FEW = 12; // rows of a table, until all of them are wanted
const all = { topics: false, groups: false };
const byId = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en");
const rate = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

let chosen = decoded(location.hash.slice(1));
let last = null; // the overview before this one: a topic's rate is the difference
let order = new Map(); // places of topics, which they keep while a reader is at the table
let shown = ""; // the messages that are on the page, as text

function say(id, text) {
  const node = byId(id);
  if (node.textContent !== text) node.textContent = text;
}

// A name of a topic in an address. Bytes that are no UTF-8 are halves of surrogate pairs here, which
// encodeURIComponent refuses; and a reader may write anything behind the #.
function encoded(name) {
  return Array.from(name, (one) => {
    const code = one.charCodeAt(0);
    if (one.length > 1 || code < 0xd800 || code > 0xdfff) return encodeURIComponent(one);
    return code >= 0xdc80 && code <= 0xdcff ? `%${(code - 0xdc00).toString(16)}` : "%EF%BF%BD";
  }).join("");
}

// As it stands where somebody typed "#%DLQ%group", which is no escaped text.
function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

// A time of a message, which its sender's or a broken clock wrote: of some there is no date.
function dated(ms) {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? undefined : date.toISOString();
}

function make(name, text, kind) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (kind) node.className = kind;
  return node;
}

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) { count /= 1024; at += 1; }
  return `${rate.format(count)} ${units[at]}`;
}

function span(ms) {
  const seconds = ms / 1000;
  if (seconds < 1) return ms > 0 ? `${Math.round(ms)} ms` : "0 s";
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

// The rows of a table stay where they are while it is used with a keyboard: cells are filled anew.
function rows(body, wanted, cells) {
  while (body.rows.length > wanted.length) body.deleteRow(-1);
  wanted.forEach((one, at) => {
    const row = body.rows[at] || body.insertRow();
    cells(row, one);
  });
}

function few(kind, wanted) {
  const more = byId(`${kind}_more`);
  more.hidden = wanted.length <= FEW;
  say(more.id, all[kind] ? "show fewer" : `show all ${number.format(wanted.length)}`);
  if (all[kind]) return wanted;
  return wanted.filter((one, at) => at < FEW || (kind === "topics" && one.name === chosen));
}

function cell(row, at, text, kind) {
  const node = row.cells[at] || row.insertCell();
  if (node.textContent !== text) node.textContent = text;
  if (node.className !== (kind || "")) node.className = kind || "";
}

function topicRow(row, topic) {
  const first = row.cells[0] || row.insertCell();
  let button = first.firstElementChild;
  if (!button) {
    button = make("button");
    button.type = "button";
    button.addEventListener("click", () => choose(button.textContent));
    first.append(button);
  }
  if (button.textContent !== topic.name) button.textContent = topic.name;
  button.setAttribute("aria-pressed", String(topic.name === chosen));
  row.className = topic.name === chosen ? "chosen" : "";
  cell(row, 1, number.format(topic.queues), "n");
  cell(row, 2, number.format(topic.messages), "n");
  cell(row, 3, rate.format(topic.rate), "n");
  cell(row, 4, topic.bytes ? `~${bytes(topic.bytes)}` : "", "n");
  cell(row, 5, topic.growth ? `${bytes(topic.growth)}/s` : "", "n");
}

function groupRow(row, group) {
  cell(row, 0, group.group);
  cell(row, 1, group.topic);
  cell(row, 2, number.format(group.consumers), "n");
  const behind = group.messages === null ? "-" : number.format(group.messages); // by broadcast
  cell(row, 3, behind, group.messages ? "n late" : "n");
  cell(row, 4, group.messages && group.late !== null ? span(group.late) : "", "n");
}

function withRates(now) {
  const before = new Map(last ? last.topics.map((one) => [one.name, one.end]) : []);
  const seconds = last ? Math.max(0.2, now.at - last.at) : 1;
  for (const topic of now.topics) {
    const end = before.get(topic.name);
    topic.rate = end === undefined ? 0 : Math.max(0, topic.end - end) / seconds;
  }
}

// Names with a button each, which chooses that topic.
function topicButtons(list, topics) {
  const names = topics.map((one) => one.name).join("\n");
  if (list.dataset.names !== names) {
    list.dataset.names = names;
    list.replaceChildren(...topics.map((one) => {
      const item = make("li");
      const button = make("button", one.name, "text");
      button.type = "button";
      button.addEventListener("click", () => choose(one.name));
      item.append(button, " ", make("span"));
      return item;
    }));
  }
  topics.forEach((one, at) => {
    const count = list.children[at].lastChild;
    const text = number.format(one.messages);
    if (count.textContent !== text) count.textContent = text;
  });
}

function showHeld(now) {
  const delayed = now.delayed.reduce((sum, one) => sum + one.messages, 0);
  say("delayed", number.format(delayed));
  say("delayed_note", now.delayed.length ? `Delayed by ${now.delayed.map((one) =>
    `${one.delay === null ? "an unknown level" : span(one.delay)}: ${number.format(one.messages)}`
  ).join(", ")}` : "");
  say("dead", number.format(now.dead.messages));
  topicButtons(byId("dead_topics"), now.dead.topics);
  say("dead_note", now.dead.topics_left_out
    ? `${number.format(now.dead.topics_left_out)} more topics have dead letters.` : "");
  say("in_doubt", now.in_doubt === null ? "-" : number.format(now.in_doubt));
}

function showExpiring(groups) {
  const found = groups.filter((one) => one.expires !== null)
    .sort((one, other) => one.expires - other.expires);
  const texts = found.slice(0, FEW_EXPIRING).map((one) =>
    `Group ${one.group} has not consumed messages of ${one.topic} that retention may delete ${
      one.expires > 0 ? `in ${span(one.expires)}` : "now"}.`);
  if (found.length > texts.length) {
    texts.push(`${number.format(found.length - texts.length)} more groups are about to lose messages.`);
  }
  const list = byId("expiring");
  list.hidden = texts.length === 0;
  const text = texts.join("\n");
  if (list.dataset.text === text) return;
  list.dataset.text = text;
  list.replaceChildren(...texts.map((one) => make("li", one)));
}

function showOverview(now) {
  if (last && now.at === last.at) return; // the server has kept it
  withRates(now);
  last = now;
  say("address", now.address);
  say("path", now.store);
  say("put_rate", rate.format(now.put_rate));
  say("get_rate", rate.format(now.get_rate));
  say("puts", number.format(now.puts));
  say("connections", number.format(now.connections));
  say("log_bytes", bytes(now.log_bytes));
  say("disk_ratio", now.disk_ratio < 0 ? "-" : `${Math.round(now.disk_ratio * 100)} %`);
  say("running", span(Math.max(0, now.now - now.started)));
  say("version", `rmqstore ${now.version}`);
  trouble(now.failed ? `The store no longer accepts messages: ${now.failed}` : "");
  showHeld(now);
  showExpiring(now.groups);
  showTrend(now.trend);
  showTopics();
  rows(byId("group_rows"), few("groups", now.groups), groupRow);
  say("groups_note", now.groups.length === 0 ? "There are no consumer groups yet."
    : now.groups_left_out ? `${number.format(now.groups_left_out)} more are not shown.` : "");
}

function showTopics() {
  if (!last) return;
  const text = byId("find").value.trim().toLowerCase();
  const system = byId("system").checked;
  const wanted = last.topics.filter((one) =>
    (system || !one.system || one.name === chosen) && one.name.toLowerCase().includes(text));
  const body = byId("topic_rows");
  if (body.matches(":hover") || body.querySelector(":focus-visible")) {
    const at = (one) => order.get(one.name) ?? order.size; // new ones come last
    wanted.sort((one, other) => at(one) - at(other));
  }
  order = new Map(wanted.map((one, at) => [one.name, at]));
  rows(body, few("topics", wanted), topicRow);
  say("topics_note", wanted.length === 0 ? "No topic yet, or none of that name."
    : last.topics_left_out ? `${number.format(last.topics_left_out)} more are not shown.` : "");
}

// A time of a message, as its date if there is one.
function timeOf(ms, verb) {
  const date = dated(ms);
  const time = make("time", date ? date.replace("T", " ") : `${ms} ms`);
  if (date) time.dateTime = date;
  if (!verb) return time;
  const both = make("span", `${verb} `);
  both.append(time);
  return both;
}

function bodyOf(message) {
  return make("pre", message.text + (message.is_cut ? " ..." : ""));
}

function addProperties(item, message) {
  const names = Object.keys(message.properties);
  if (!names.length) return;
  const more = make("details");
  const list = names.map((name) => `${name} = ${message.properties[name]}`).join("\n");
  more.append(make("summary", `${names.length} properties`), make("pre", list));
  item.append(more);
}

// Place, further nodes, and the fields that are not empty.
function messageLine(message, ...nodes) {
  const line = make("div", undefined, "line");
  line.append(make("span", `queue ${message.queue_id}, offset ${message.queue_offset}`), ...nodes);
  if (message.tags) line.append(make("span", message.tags, "tag"));
  if (message.keys) line.append(make("span", `keys ${message.keys}`));
  line.append(make("span", `from ${message.born_host}`), make("span", bytes(message.bytes)),
    make("span", message.id));
  return line;
}

function messageItem(message) {
  const item = make("li");
  item.append(messageLine(message, timeOf(message.stored)), bodyOf(message));
  addProperties(item, message);
  return item;
}

function showTopic(topic) {
  byId("topic").hidden = false;
  say("topic_name", topic.name);
  const of = topic.queues.map((one) => `${one.id}: ${one.min} to ${one.max}`);
  say("queues", of.length ? `Queues and their offsets: ${of.slice(0, 16).join(", ")}${
    of.length > 16 || topic.queues_left_out ? ", ..." : ""}` : "It has no queue yet.");
  const text = JSON.stringify(topic.messages);
  if (text === shown) return; // what somebody reads, or has opened, stays
  shown = text;
  byId("messages").replaceChildren(...topic.messages.map(messageItem));
  say("messages_note", topic.messages.length ? "" : "It has no message yet.");
}

function choose(name) {
  chosen = name;
  shown = "";
  history.replaceState(null, "", `#${encoded(name)}`);
  showTopics();
  refreshTopic();
}

function trouble(text) {
  say("trouble", text);
  byId("trouble").hidden = !text;
}

async function ask(path) {
  const reply = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(10000) });
  if (!reply.ok) throw new Error(`${reply.status}`);
  return reply.json();
}

async function refreshTopic() {
  const name = chosen;
  if (!name) return;
  try {
    const topic = await ask(`/api/topic?name=${encoded(name)}`);
    if (name === chosen) showTopic(topic);
  } catch (error) {
    if (name === chosen && error.message === "404") byId("topic").hidden = true;
  }
}

async function refresh() {
  if (!document.hidden) {
    try {
      showOverview(await ask("/api/overview"));
      say("state", "live");
      if (!chosen) {
        const first = last.topics.find((one) => !one.system && one.messages > 0);
        if (first) chosen = first.name;
      }
      await refreshTopic();
    } catch (error) {
      say("state", "no answer from the server; retrying");
    }
  }
  setTimeout(refresh, EVERY);
}

for (const kind of ["topics", "groups"]) {
  byId(`${kind}_more`).addEventListener("click", () => {
    all[kind] = !all[kind];
    showTopics();
    if (last) rows(byId("group_rows"), few("groups", last.groups), groupRow);
  });
}
byId("find").addEventListener("input", showTopics);
byId("system").addEventListener("change", showTopics);
refresh();

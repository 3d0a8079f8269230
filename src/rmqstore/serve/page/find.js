// Finds messages by key or id. A body is requested only when its button is used.
"use strict";

let asked = 0; // searches so far: the answer to an earlier one is dropped

function foundItem(message) {
  const item = make("li");
  const line = messageLine(message, make("span", `log offset ${message.at}`),
    timeOf(message.stored, "stored"), timeOf(message.born, "born"));
  line.prepend(make("span", message.topic));
  if (message.msg_id !== message.id) line.append(make("span", message.msg_id));
  const button = make("button", "Show the body", "text");
  button.type = "button";
  button.addEventListener("click", () => showBody(button, message.at));
  item.append(line, button);
  addProperties(item, message);
  return item;
}

async function showBody(button, at) {
  try {
    const body = bodyOf(await ask(`/api/body?at=${at}`));
    body.tabIndex = -1;
    button.replaceWith(body);
    body.focus();
  } catch (error) {
    button.textContent = "The body cannot be read; try again";
  }
}

function findNote(found) {
  const count = found.messages.length;
  const texts = [count === 0 ? "No message has that key or id."
    : found.more ? `${found.topics_left_out ? "" : "The newest "}${count} messages; there are more.`
      : count === 1 ? "1 message." : `${count} messages.`];
  if (found.topics_left_out) {
    texts.push(`${number.format(found.topics_left_out)} topics were not searched: name one.`);
  }
  if (found.error) texts.push(found.error);
  return texts.join(" ");
}

async function find(text, topic) {
  asked += 1;
  const mine = asked;
  say("find_note", "searching");
  byId("found").replaceChildren();
  try {
    const found = await ask(`/api/find?text=${encoded(text)}&topic=${encoded(topic)}`);
    if (mine !== asked) return;
    byId("found").replaceChildren(...found.messages.map(foundItem));
    say("find_note", findNote(found));
  } catch (error) {
    if (mine === asked) say("find_note", "The search failed; try again.");
  }
}

byId("find_form").addEventListener("submit", (event) => {
  event.preventDefault();
  find(byId("find_text").value.trim(), byId("find_topic").value.trim());
});
byId("find_topic").addEventListener("focus", () => {
  if (!last) return;
  byId("find_topics").replaceChildren(...last.topics.filter((one) => !one.system).map((one) => {
    const option = make("option");
    option.value = one.name;
    return option;
  }));
});

// node --test, with rhea: the broker is a process that ends with the suite.
const assert = require("node:assert");
const { spawn } = require("node:child_process");
const { createInterface } = require("node:readline");
const { after, before, test } = require("node:test");
const rhea = require("rhea");

let server, lines, url;

before(async () => {
  server = spawn(process.env.AMQP_BROKER || "amqp-broker", ["test-server"], { stdio: ["pipe", "pipe", "inherit"] });
  lines = createInterface({ input: server.stdout })[Symbol.asyncIterator]();
  url = new URL((await lines.next()).value);
});

after(() => server.stdin.end());

async function ask(...command) {
  server.stdin.write(JSON.stringify(command) + "\n");
  const answer = JSON.parse((await lines.next()).value);
  if (answer.error) throw new Error(answer.error);
  return answer.result;
}

function send(body) {
  return new Promise((resolve, reject) => {
    const connection = rhea.create_container().connect({ host: url.hostname, port: url.port, reconnect: false });
    connection.once("sendable", (context) => context.sender.send({ body, durable: true }));
    connection.once("accepted", () => { connection.close(); resolve("accepted"); });
    connection.once("rejected", (context) => { connection.close(); resolve(context.delivery.remote_state.error.description); });
    connection.once("connection_error", reject);
    connection.open_sender("orders");
  });
}

test("an order is sent", async () => {
  assert.equal(await send("a pair of shoes"), "accepted");
  assert.equal(await ask("depth", "orders"), 1);
  assert.equal((await ask("peek", "orders"))[0].body, "a pair of shoes");
  assert.equal(await ask("purge", "orders"), 1);
});

test("an order is refused", async () => {
  await ask("message", "reject", { text: "sold out" });
  assert.equal(await send("another pair"), "sold out");
  assert.equal(await ask("depth", "orders"), 0);
});

// Runs the program as often as tests ask for it, so that Node starts once: a line of JSON asks, a line answers.
const { createInterface } = require("node:readline");
const { Invoicing } = require("./invoicing.js");

const programs = new Map();
const commands = {
  async start({ name, wait, ...options }) {
    const program = new Invoicing({ name, ...options });
    programs.set(name, program);
    if (wait) await program.opened();
  },
  report: ({ name }) => (({ invoiced, errors, connections }) => ({ invoiced, errors, connections }))(programs.get(name)),
  learn: ({ name, prices }) => void Object.assign(programs.get(name).prices, prices),
  async stop({ name }) {
    const program = programs.get(name);
    programs.delete(name);
    await program.stop();
  },
};

createInterface({ input: process.stdin }).on("line", async (line) => {
  const { command, ...options } = JSON.parse(line);
  let answer;
  try {
    answer = { result: (await commands[command](options)) ?? null };
  } catch (error) {
    answer = { error: String(error.stack || error) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}).on("close", () => process.exit(0));

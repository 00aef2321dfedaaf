// OpenAI's own package for Node, unmodified, and Node's fetch, against two servers: a scripted one (argument 1) and a
// tiny model (2).
import assert from "node:assert/strict";
import OpenAI from "openai";

const [scriptedUrl, modelUrl] = process.argv.slice(2);
const scripted = new OpenAI({baseURL: scriptedUrl + "/v1", apiKey: "test-key", maxRetries: 0});
const model = new OpenAI({baseURL: modelUrl + "/v1", apiKey: "none", maxRetries: 0});
const user = (text) => [{role: "user", content: text}];
const tools = [{type: "function", function: {name: "weather", parameters: {
  type: "object", properties: {city: {type: "string"}}}}}];
const call = 'SAY[[<think>hm</think>Look.<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>]]';

const checks = {
  async chat() {
    const answer = await scripted.chat.completions.create({model: "scripted", messages: user("SAY[[Grüße]]")});
    assert.equal(answer.choices[0].message.content, "Grüße");
  },
  async stream() {
    const stream = await scripted.chat.completions.create(
        {model: "scripted", messages: user("SAY[[Grüße, 世界]]"), stream: true, stream_options: {include_usage: true}});
    let text = "", usage = null;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta?.content ?? "";
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, "Grüße, 世界");
    assert.ok(usage.completion_tokens > 0);
  },
  async tools() {
    const stream = scripted.chat.completions.stream({model: "scripted", messages: user(call), tools});
    const final = await stream.finalChatCompletion();
    assert.deepEqual(JSON.parse(final.choices[0].message.tool_calls[0].function.arguments), {city: "Köln"});
    assert.equal(final.choices[0].finish_reason, "tool_calls");
  },
  async forcedTools() { // random weights: only the server makes the model obey
    const parameters = {type: "object", required: ["degrees"], additionalProperties: false,
      properties: {degrees: {type: "integer", minimum: -50, maximum: 50}}};
    const choices = [{tool_choice: {type: "function", function: {name: "record"}}},
      {tool_choice: "required", parallel_tool_calls: false}];
    for (let seed = 0; seed < 10; ++seed) {
      for (const choice of choices) {
        const answer = await model.chat.completions.create({model: "tiny", messages: user("hi"), seed,
          tools: [{type: "function", function: {name: "record", parameters}}], reasoning_effort: "none", ...choice});
        const {message, finish_reason} = answer.choices[0];
        assert.equal(finish_reason, "tool_calls");
        assert.equal(message.tool_calls.length, 1, JSON.stringify(message));
        const {degrees, ...others} = JSON.parse(message.tool_calls[0].function.arguments);
        assert.ok(Number.isInteger(degrees) && degrees >= -50 && degrees <= 50, `${degrees}`);
        assert.deepEqual(others, {});
      }
    }
  },
  async responses() {
    const stream = await scripted.responses.create({model: "scripted", input: "SAY[[hello]]", stream: true});
    let text = "", last = null;
    for await (const event of stream) {
      if (event.type === "response.output_text.delta") text += event.delta;
      last = event;
    }
    assert.equal(text, "hello");
    assert.equal(last.type, "response.completed");
  },
  async disconnecting() {
    const controller = new AbortController();
    const stream = await scripted.chat.completions.create(
        {model: "scripted", messages: user("WAIT[[w]]"), stream: true}, {signal: controller.signal});
    for await (const chunk of stream) {
      if (chunk.choices[0].delta.content === "w") controller.abort();
    }
    for (const end = Date.now() + 120_000; ; await new Promise((resolve) => setTimeout(resolve, 20))) {
      if ((await (await fetch(scriptedUrl + "/health")).json()).active_requests === 0) break;
      assert.ok(Date.now() < end, "generation continues after the client disconnected");
    }
  },
  async errors() {
    await assert.rejects(scripted.chat.completions.create({model: "nope", messages: user("x")}), OpenAI.NotFoundError);
    await assert.rejects(model.chat.completions.create({model: "tiny", messages: user("x"), top_p: 5}),
                         OpenAI.BadRequestError);
  },
  async embeddings() {
    const answer = await model.embeddings.create({model: "tiny", input: ["a", "b"]});
    assert.equal(answer.data.length, 2);
    assert.ok(Math.abs(answer.data[0].embedding.reduce((sum, x) => sum + x * x, 0) - 1) < 1e-3);
  },
  async fetchFromAnotherOrigin() {
    const response = await fetch(modelUrl + "/v1/models", {headers: {Origin: "https://evil.example"}});
    assert.equal(response.status, 403);
    assert.equal(response.headers.get("access-control-allow-origin"), null);
  },
};
for (const check of Object.values(checks)) await check();
console.log(`openai for Node ${process.version}: ${Object.keys(checks).length} checks`);

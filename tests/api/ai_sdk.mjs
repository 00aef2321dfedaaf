// The ai SDK with its providers, unmodified, against a scripted server (argument 1) and a tiny model that does not think (2).
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import assert from "node:assert";
import { z } from "zod";

const [, , url, tinyUrl] = process.argv;
const apiKey = "test-key";
const compatible = (base) =>
  createOpenAICompatible({ name: "zinc", baseURL: `${base}/v1`, apiKey, supportsStructuredOutputs: true });
const modelsOf = (base, name) => ({
  openai: createOpenAI({ baseURL: `${base}/v1`, apiKey })(name), // Responses, with item references
  stateless: createOpenAI({ baseURL: `${base}/v1`, apiKey })(name),
  chat: createOpenAI({ baseURL: `${base}/v1`, apiKey }).chat(name),
  compatible: compatible(base)(name),
  anthropic: createAnthropic({ baseURL: `${base}/v1`, apiKey })(name),
});
const models = modelsOf(url, "scripted");
const weather = tool({
  description: "Weather of a city",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `SAY[[rain in ${city}]]`,
});
const call = 'SAY[[<think>hm</think>Look.<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>]]';

for (const [name, model] of Object.entries(models)) {
  const providerOptions = name === "stateless" ? { openai: { store: false } } : {};
  const answer = await generateText({
    model, prompt: call, tools: { weather }, stopWhen: stepCountIs(3), maxRetries: 0, providerOptions,
  });
  assert.equal(answer.text, "rain in Ulm", name);
  let text = "";
  for await (const piece of streamText({ model, prompt: "SAY[[hello]]", maxRetries: 0 }).textStream) text += piece;
  assert.equal(text, "hello", name);
}

// Random weights: only the server makes the model obey. A named tool is called exactly once.
const schema = z.object({ degrees: z.number().int().min(-50).max(50), unit: z.enum(["celsius", "kelvin"]) });
const record = tool({ description: "Records what an instrument shows", inputSchema: schema });
const providerOptions = {
  openai: { parallelToolCalls: false }, zinc: { parallel_tool_calls: false }, anthropic: { disableParallelToolUse: true },
};
for (const [name, model] of Object.entries(modelsOf(tinyUrl, "tiny"))) {
  const asked = { model, prompt: "hi", maxRetries: 0, maxOutputTokens: 500 };
  for (let i = 0; i < 5; ++i) {
    for (const choice of [{ toolChoice: { type: "tool", toolName: "record" } }, { toolChoice: "required", providerOptions }]) {
      const answer = await generateText({ ...asked, tools: { record }, ...choice });
      assert.equal(answer.toolCalls.length, 1, `${name}: ${JSON.stringify(answer.toolCalls)}`);
      schema.parse(answer.toolCalls[0].input);
    }
    schema.parse((await generateObject({ ...asked, schema })).object);
  }
}
for (const embedder of [createOpenAI({ baseURL: `${tinyUrl}/v1`, apiKey }), compatible(tinyUrl)]) {
  const { embeddings } = await embedMany({ model: embedder.textEmbeddingModel("tiny"), values: ["one", "two"], maxRetries: 0 });
  assert.equal(embeddings.length, 2);
  assert.ok(embeddings[0].length > 16 && embeddings[0].length === embeddings[1].length);
}
console.log(`ai SDK: ${Object.keys(models).length} providers`);

// The ai SDK with its providers, unmodified, against a scripted server (argument 1).
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import assert from "node:assert";
import { z } from "zod";

const [, , url] = process.argv;
const apiKey = "test-key";
const models = {
  openai: createOpenAI({ baseURL: `${url}/v1`, apiKey })("scripted"), // Responses, with item references
  stateless: createOpenAI({ baseURL: `${url}/v1`, apiKey })("scripted"),
  chat: createOpenAI({ baseURL: `${url}/v1`, apiKey }).chat("scripted"),
  compatible: createOpenAICompatible({ name: "zinc", baseURL: `${url}/v1`, apiKey })("scripted"),
  anthropic: createAnthropic({ baseURL: `${url}/v1`, apiKey })("scripted"),
};
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
console.log(`ai SDK: ${Object.keys(models).length} providers`);

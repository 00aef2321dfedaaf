// How many tokens of the context the displayed conversation fills. After a complete answer the server's own count is used;
// otherwise (a stopped or lost answer, an imported or edited conversation) the server counts the prompt. null: unknown.
import { computed, effect, signal } from '@preact/signals';
import { live, requestBody, sentPart } from './answer';
import { applyTemplate } from './api';
import { conversation, isServerUnreachable, model, path, settings } from './state';
import type { Message } from './types';

export const kWarnAt = 0.8; // of the context

const counted = signal<{ key: string; n: number | null }>({ key: '', n: null });

const lengthOf = ({ id, content, reasoning = '' }: Message) => `${id}:${content.length}:${reasoning.length}`;
const streaming = computed(() => path.value.map(({ id }) => live.value.get(id)).find(Boolean));
const lastUsage = computed(() => {
  const last = path.value.at(-1);
  return conversation.value?.context ? undefined : last?.usage?.total_tokens;
});

// Identifies what is to be counted; empty: nothing.
const key = computed(() => {
  if (streaming.value || lastUsage.value !== undefined || path.value.length === 0 || !model.value || isServerUnreachable.value) return '';
  const { system = '', tools = '' } = settings.value;
  return [model.value.name, system, tools, JSON.stringify(conversation.value?.context), ...path.value.map(lengthOf)].join();
});

export async function countTokens(list: Message[]): Promise<number> {
  const { stream: _, stream_options: _o, return_progress: _p, ...body } = requestBody(list, settings.peek(), model.peek()?.name, false) as Record<string, unknown>;
  return (await applyTemplate(body)).count;
}

const kDelayMs = 200;
let timer: ReturnType<typeof setTimeout>;
effect(() => {
  const wanted = key.value;
  clearTimeout(timer);
  if (!wanted) return;
  const list = sentPart(path.peek()).filter((message) => message.role !== 'assistant' || message.content || message.toolCalls?.length);
  timer = setTimeout(async () => {
    const n = await countTokens(list).catch(() => null);
    counted.value = { key: wanted, n };
  }, kDelayMs);
});

export const tokensInContext = computed<number | null>(() => {
  if (path.value.length === 0) return 0;
  const state = streaming.value;
  if (state?.progress.value) return state.progress.value.processed + state.nTokens.value;
  if (state) return path.value.findLast((message) => message.usage)?.usage?.total_tokens ?? null;
  return lastUsage.value ?? (counted.value.key === key.value && key.value ? counted.value.n : null);
});

export const isContextNearlyFull = computed(() => {
  const context = model.value?.context ?? 0;
  return context > 0 && (tokensInContext.value ?? 0) >= context * kWarnAt;
});

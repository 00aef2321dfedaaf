// Asks for an answer and writes it into its message as it comes. The text is the message's own; views are called once
// per frame at most. Whatever ends it, what has come stays, and can be gone on with.
import { batch, signal, type Signal } from '@preact/signals';
import { LostConnection, ServerError, streamChat, type ChatChunk, type WireToken } from './api';
import * as db from './db';
import { store, writings } from './keep';
import {
  addMessage, changeConversation, conversation, messageChanged, messages, model, newId, path, pathTo, props, refreshFigures,
  settings as currentSettings, startConversation, titleOf,
} from './state';
import type { Attachment, Message, NoticeKind, Progress, Settings, TokenChoice, ToolCall } from './types';

// An answer under way.
export class Live {
  readonly progress: Signal<Progress | null> = signal(null);
  readonly rate = signal(0); // tokens a second, so far
  readonly nTokens = signal(0);
  readonly phase = signal<'waiting' | 'reading' | 'thinking' | 'writing'>('waiting');
  readonly abort = new AbortController();
  readonly views = new Set<() => void>();
  private isScheduled = false;
  private drawMs = 0;

  // A frame that took long is followed by a pause in proportion: typing and scrolling go first.
  schedule(): void {
    if (this.isScheduled) return;
    this.isScheduled = true;
    const pause = this.drawMs > 6 ? this.drawMs * 3 : 0;
    const run = () => {
      this.isScheduled = false;
      const begin = performance.now();
      for (const view of this.views) view();
      this.drawMs = performance.now() - begin;
    };
    if (document.hidden) setTimeout(run, 250);
    else if (pause > 0) setTimeout(() => requestAnimationFrame(run), pause);
    else requestAnimationFrame(run);
  }
}

export const live = signal<Map<string, Live>>(new Map());
export const isAnswering = () => path.value.some((message) => live.value.has(message.id));

// A file that has a fence in it gets a longer one around it.
function fenced(file: Attachment): string {
  const longest = Math.max(2, ...(file.text.match(/`{3,}/g) ?? []).map((fence) => fence.length));
  const fence = '`'.repeat(longest + 1);
  return `${file.name}\n${fence}\n${file.text}\n${fence}\n\n`;
}

export function textOf(message: Message): string {
  return (message.attachments ?? []).map(fenced).join('') + message.content;
}

// The conversation as the API takes it, whole.
function wireMessages(list: Message[], set: Settings): unknown[] {
  const out: unknown[] = set.system ? [{ role: 'system', content: set.system }] : [];
  for (const message of list) {
    if (message.role === 'tool') {
      out.push({ role: 'tool', tool_call_id: message.toolCallId, content: message.content });
    } else if (message.role === 'user') {
      out.push({ role: 'user', content: textOf(message) });
    } else {
      out.push({
        role: 'assistant',
        content: message.content,
        ...(message.reasoning ? { reasoning_content: message.reasoning } : {}),
        ...(message.toolCalls?.length
          ? {
              tool_calls: message.toolCalls.map((call) => ({
                id: call.id,
                type: 'function',
                function: { name: call.name, arguments: call.arguments },
              })),
            }
          : {}),
      });
    }
  }
  return out;
}

const kSampling = [
  'temperature', 'top_p', 'top_k', 'min_p', 'repeat_penalty', 'frequency_penalty', 'presence_penalty', 'seed', 'max_tokens',
  'thinking_budget',
] as const;

export function requestBody(list: Message[], set: Settings, modelName: string | undefined, continues: boolean): object {
  const body: Record<string, unknown> = {
    messages: wireMessages(list, set),
    stream: true,
    stream_options: { include_usage: true },
    return_progress: true,
  };
  if (modelName) body.model = modelName;
  const advised = props.value?.models.find((entry) => entry.name === modelName)?.recommended_sampling ?? {};
  for (const name of kSampling) {
    const value = set[name] ?? advised[name];
    if (value !== undefined) body[name] = value;
  }
  if (set.thinking !== undefined) body.enable_thinking = set.thinking;
  if (set.probabilities) Object.assign(body, { logprobs: true, top_logprobs: 6 });
  if (set.tools?.trim()) body.tools = JSON.parse(set.tools);
  if (continues) body.continue_final_message = true;
  return body;
}

// Tokens may end inside a character; those that belong to one are shown as one, without alternatives.
export class TokenReader {
  private bytes: number[] = [];
  private p = 1;
  constructor(private readonly out: TokenChoice[]) {}

  take(token: WireToken): void {
    const own = token.bytes ?? [...new TextEncoder().encode(token.token)];
    const isAlone = this.bytes.length === 0;
    this.bytes.push(...own);
    this.p = Math.min(this.p, Math.exp(token.logprob));
    const text = decoded(this.bytes) ?? (isBeginning(this.bytes) ? null : new TextDecoder().decode(new Uint8Array(this.bytes)));
    if (text === null) return;
    const top = isAlone ? (token.top_logprobs ?? []) : [];
    this.out.push({
      text,
      p: this.p,
      top: top.flatMap((other) => {
        const shown = other.bytes ? decoded(other.bytes) : other.token;
        return shown === null ? [] : [{ text: shown, p: Math.exp(other.logprob) }];
      }),
    });
    this.bytes = [];
    this.p = 1;
  }
}

// Where in the content each token begins; -1 for those that are no part of it, such as the end of a thought.
export function tokenOffsets(content: string, tokens: TokenChoice[]): number[] {
  let at = 0;
  return tokens.map(({ text }) => {
    const shown = at === 0 && !content.startsWith(text) ? text.trimStart() : text;
    if (!shown || !content.startsWith(shown, at)) return -1;
    at += shown.length;
    return at - shown.length;
  });
}

// The tokens, and what of the content is in none of them, since it came without its probabilities, as one piece.
export function withRest(content: string, tokens: TokenChoice[]): TokenChoice[] {
  const offsets = tokenOffsets(content, tokens);
  const last = offsets.findLastIndex((offset) => offset >= 0);
  const shown = last < 0 ? '' : tokens[last].text;
  const end = last < 0 ? 0 : offsets[last] + (content.startsWith(shown, offsets[last]) ? shown : shown.trimStart()).length;
  return end < content.length ? [...tokens, { text: content.slice(end), p: 1, top: [] }] : tokens;
}

// Whether more bytes could still make characters of these.
function isBeginning(bytes: number[]): boolean {
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(new Uint8Array(bytes), { stream: true });
    return true;
  } catch {
    return false;
  }
}

function decoded(bytes: number[]): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(new Uint8Array(bytes));
  } catch {
    return null;
  }
}

// Takes what an event says into the message.
class Writer {
  private thoughtFrom = 0;
  private readonly thoughtBefore: { ms: number; tokens: number }; // of an answer that is gone on with
  private firstAt = 0;
  private nAtFirst = 0;
  private ratedAt = 0;
  private readonly tokens: TokenReader | null;
  private readonly calls: ToolCall[] = [];
  finish: string | null = null;

  constructor(
    private readonly message: Message,
    private readonly state: Live,
    wantsTokens: boolean,
  ) {
    // What was there without its probabilities is one piece.
    if (wantsTokens) message.tokens = withRest(message.content, message.tokens ?? []);
    this.tokens = wantsTokens ? new TokenReader(message.tokens!) : null;
    this.thoughtBefore = { ms: message.reasoningMs ?? 0, tokens: message.reasoningTokens ?? 0 };
  }

  take(chunk: ChatChunk): void {
    const { message, state } = this;
    if (chunk.prompt_progress) {
      state.progress.value = chunk.prompt_progress;
      if (state.phase.value === 'waiting') state.phase.value = 'reading';
    }
    const choice = chunk.choices[0];
    const delta = choice?.delta;
    if (delta?.content || delta?.reasoning_content || delta?.tool_calls) this.count(chunk.completion_tokens);
    if (delta?.reasoning_content) this.takeThought(delta.reasoning_content);
    if (delta?.content) this.takeContent(delta.content);
    for (const call of delta?.tool_calls ?? []) {
      this.calls[call.index] ??= { id: '', name: '', arguments: '' };
      const known = this.calls[call.index];
      known.id ||= call.id ?? '';
      known.name ||= call.function?.name ?? '';
      known.arguments += call.function?.arguments ?? '';
      message.toolCalls = this.calls.filter(Boolean);
    }
    if (delta?.content && this.tokens) for (const token of choice.logprobs?.content ?? []) this.tokens.take(token);
    if (choice?.finish_reason) this.finish = choice.finish_reason;
    if (chunk.timings) message.timings = chunk.timings;
    if (chunk.usage) {
      message.usage = chunk.usage;
      const n = this.thoughtBefore.tokens + (chunk.usage.completion_tokens_details?.reasoning_tokens ?? 0);
      message.reasoningTokens = n || undefined;
    }
  }

  private takeThought(text: string): void {
    this.thoughtFrom ||= performance.now();
    this.message.reasoning = (this.message.reasoning ?? '') + text;
    this.message.reasoningTokens = this.thoughtBefore.tokens + this.state.nTokens.peek();
    this.message.reasoningMs = this.thoughtBefore.ms + performance.now() - this.thoughtFrom;
    this.state.phase.value = 'thinking';
  }

  private takeContent(text: string): void {
    if (this.thoughtFrom && this.state.phase.peek() === 'thinking') {
      this.message.reasoningMs = this.thoughtBefore.ms + performance.now() - this.thoughtFrom;
    }
    this.message.content += text;
    this.state.phase.value = 'writing';
  }

  // An event may bring several tokens; the server says how many there are by now.
  private count(nSoFar: number | undefined): void {
    const now = performance.now();
    const n = nSoFar ?? this.state.nTokens.peek() + 1;
    if (!this.firstAt) {
      this.firstAt = now;
      this.nAtFirst = n;
    }
    batch(() => {
      this.state.nTokens.value = n;
      const elapsed = now - this.firstAt;
      if (elapsed > 200 && now - this.ratedAt > 250) {
        this.state.rate.value = ((n - this.nAtFirst) * 1000) / elapsed;
        this.ratedAt = now;
      }
    });
    this.state.schedule();
  }
}

function noticeOf(error: unknown, wasStopped: boolean): { kind: NoticeKind; text: string } {
  if (wasStopped) return { kind: 'stopped', text: 'Stopped.' };
  if (error instanceof LostConnection) return { kind: 'lost', text: `Connection lost: ${error.message}.` };
  if (error instanceof ServerError && error.code === 'context_length_exceeded') return { kind: 'context', text: error.message };
  return { kind: 'error', text: error instanceof Error ? error.message : String(error) };
}

function settle(message: Message, finish: string | null): void {
  const context = props.value?.models.find((entry) => entry.name === message.model)?.context ?? 0;
  if (finish === 'length' && context > 0 && (message.usage?.total_tokens ?? 0) >= context - 1) {
    message.notice = { kind: 'context', text: `The context of ${context.toLocaleString()} tokens is full.` };
  } else if (finish === 'length') {
    message.notice = { kind: 'length', text: 'The answer reached its token limit.' };
  } else if (!message.content.trim() && !message.toolCalls?.length) {
    message.notice = { kind: 'empty', text: 'The model gave an empty answer.' };
  }
}

const kSaveEveryMs = 300;

// Runs one answer into `message`, whose path is sent. Never throws: what went wrong is the message's notice.
export async function run(message: Message, before: Message[], set: Settings): Promise<void> {
  const state = new Live();
  const continues = Boolean(message.content || message.reasoning);
  message.writing = true;
  message.notice = message.finish = undefined;
  message.model ??= set.model ?? model.value?.name;
  const served = props.value?.models.some((entry) => entry.name === message.model);
  if (!served) message.model = model.value?.name ?? message.model;
  live.value = new Map(live.value).set(message.id, state);
  let ended = () => {};
  const isOver = new Promise<void>((resolve) => (ended = resolve));
  writings.set(message.id, { message, stop: () => state.abort.abort(), ended: isOver });
  const timer = setInterval(() => void store([], [message]), kSaveEveryMs);
  try {
    if (message.hasTokens) message.tokens ??= await db.tokensOf(message.id);
    const writer = new Writer(message, state, Boolean(set.probabilities));
    const body = requestBody(continues ? [...before, message] : before, set, message.model, continues);
    await streamChat(body, state.abort.signal, (chunk) => writer.take(chunk));
    message.finish = writer.finish ?? undefined;
    settle(message, writer.finish);
  } catch (error) {
    message.notice = noticeOf(error, state.abort.signal.aborted);
  }
  clearInterval(timer);
  message.writing = false;
  writings.delete(message.id);
  await store([], [message]);
  ended();
  const rest = new Map(live.value);
  rest.delete(message.id);
  batch(() => {
    live.value = rest;
    messageChanged();
  });
  void refreshFigures();
}

function newMessage(change: Partial<Message>): Message {
  return {
    id: newId(),
    conversation: conversation.value!.id,
    parent: conversation.value!.head,
    role: 'assistant',
    content: '',
    created: Date.now(),
    ...change,
  };
}

function answerTo(parent: string | null, change: Partial<Message> = {}): void {
  const message = newMessage({ parent, ...change });
  addMessage(message);
  void run(message, pathTo(messages.value, parent), currentSettings.value);
}

// Whether the question is stored; the answer goes its own way.
export function send(text: string, attachments: Attachment[]): Promise<boolean> {
  if (!conversation.value) startConversation(text || attachments[0]?.name || '');
  const entry = conversation.value!;
  if (!entry.head) changeConversation(entry.id, { title: titleOf(text || attachments[0]?.name || '') });
  const message = newMessage({ role: 'user', content: text, attachments: attachments.length ? attachments : undefined });
  const isStored = addMessage(message);
  answerTo(message.id);
  return isStored;
}

export function stop(): void {
  for (const message of path.value) live.value.get(message.id)?.abort.abort();
}

// Another answer to the same question, beside the one there is.
export function regenerate(message: Message): void {
  answerTo(message.parent);
}

// The answer goes on where it ended. Half a tool call cannot be gone on with: it is asked for anew.
export function continueAnswer(message: Message): void {
  if (live.value.has(message.id)) return;
  if (message.toolCalls?.length) return regenerate(message);
  void run(message, pathTo(messages.value, message.parent), currentSettings.value);
  messageChanged();
}

// The question asked otherwise, as a branch of its own.
export function editAndFork(message: Message, text: string): void {
  const fork = newMessage({ role: 'user', parent: message.parent, content: text, attachments: message.attachments });
  addMessage(fork);
  answerTo(fork.id);
}

// What an answer that begins as this one did, up to a token, and takes another one there begins with.
export function alternative(message: Message, tokens: TokenChoice[], index: number, text: string): Partial<Message> {
  const begin = message.content.slice(0, tokenOffsets(message.content, tokens)[index]);
  const { top } = tokens[index];
  return {
    content: begin + text,
    reasoning: message.reasoning,
    reasoningMs: message.reasoningMs,
    reasoningTokens: message.reasoningTokens,
    tokens: [...tokens.slice(0, index), { text, p: top.find((other) => other.text === text)?.p ?? 0, top }],
  };
}

// A branch that goes on from there.
export function takeAlternative(message: Message, begin: Partial<Message>): void {
  answerTo(message.parent, begin);
}

// What a tool gave back; once every call has its result, the model goes on.
export function giveToolResult(call: ToolCall, text: string): void {
  const message = newMessage({ role: 'tool', content: text, toolCallId: call.id });
  void addMessage(message);
  const at = path.value.findLastIndex((entry) => entry.toolCalls?.length);
  const answered = new Set(path.value.slice(at + 1).map((entry) => entry.toolCallId)); // an id may have been used before
  const asked = path.value[at]?.toolCalls ?? [];
  if (asked.every((entry) => answered.has(entry.id))) answerTo(message.id);
}

// Asks for an answer and writes it into its message as it comes. The text is the message's own; views are called once
// per frame at most. Whatever ends it, what has come stays, and can be gone on with.
import { batch, signal, type Signal } from '@preact/signals';
import { LostConnection, ServerError, streamChat, type ChatChunk, type WireToken } from './api';
import {
  addMessage, changeConversation, conversation, keep, liveMessages, messageChanged, messages, model, newId, path, pathTo,
  props, refreshFigures, settings as currentSettings, startConversation, titleOf,
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

export function textOf(message: Message): string {
  const files = (message.attachments ?? []).map((file) => `${file.name}\n\`\`\`\n${file.text}\n\`\`\`\n\n`);
  return files.join('') + message.content;
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
  for (const name of kSampling) if (set[name] !== undefined) body[name] = set[name];
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
  private firstAt = 0;
  private readonly tokens: TokenReader | null;
  private readonly calls: ToolCall[] = [];
  finish: string | null = null;

  constructor(
    private readonly message: Message,
    private readonly state: Live,
    wantsTokens: boolean,
  ) {
    // What was there without its probabilities is one piece.
    if (wantsTokens) message.tokens ??= message.content ? [{ text: message.content, p: 1, top: [] }] : [];
    this.tokens = wantsTokens ? new TokenReader(message.tokens!) : null;
  }

  take(chunk: ChatChunk): void {
    const { message, state } = this;
    if (chunk.prompt_progress) {
      state.progress.value = chunk.prompt_progress;
      if (state.phase.value === 'waiting') state.phase.value = 'reading';
    }
    const choice = chunk.choices[0];
    const delta = choice?.delta;
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
      message.reasoningTokens = chunk.usage.completion_tokens_details?.reasoning_tokens;
    }
    if (delta?.content || delta?.reasoning_content || delta?.tool_calls) this.count();
  }

  private takeThought(text: string): void {
    this.thoughtFrom ||= performance.now();
    this.message.reasoning = (this.message.reasoning ?? '') + text;
    this.message.reasoningTokens = (this.message.reasoningTokens ?? 0) + 1;
    this.message.reasoningMs = performance.now() - this.thoughtFrom;
    this.state.phase.value = 'thinking';
  }

  private takeContent(text: string): void {
    this.message.content += text;
    this.state.phase.value = 'writing';
  }

  private count(): void {
    const now = performance.now();
    this.firstAt ||= now;
    const n = this.state.nTokens.peek() + 1;
    batch(() => {
      this.state.nTokens.value = n;
      if (now - this.firstAt > 200 && n % 8 === 0) this.state.rate.value = ((n - 1) * 1000) / (now - this.firstAt);
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
export async function run(message: Message, before: Message[], set: Settings, keeps = true): Promise<void> {
  const state = new Live();
  const continues = Boolean(message.content || message.reasoning);
  message.writing = true;
  message.notice = undefined;
  message.model ??= set.model ?? model.value?.name;
  const served = props.value?.models.some((entry) => entry.name === message.model);
  if (!served) message.model = model.value?.name ?? message.model;
  liveMessages.set(message.id, message);
  live.value = new Map(live.value).set(message.id, state);
  const writer = new Writer(message, state, Boolean(set.probabilities));
  const timer = keeps ? setInterval(() => keep([message], null), kSaveEveryMs) : undefined;
  try {
    const body = requestBody(continues ? [...before, message] : before, set, message.model, continues);
    await streamChat(body, state.abort.signal, (chunk) => writer.take(chunk));
    settle(message, writer.finish);
  } catch (error) {
    message.notice = noticeOf(error, state.abort.signal.aborted);
  }
  clearInterval(timer);
  message.writing = false;
  liveMessages.delete(message.id);
  if (keeps) keep([message], null);
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

export function send(text: string, attachments: Attachment[]): void {
  if (!conversation.value) startConversation(text || attachments[0]?.name || '');
  const entry = conversation.value!;
  if (!entry.head) changeConversation(entry.id, { title: titleOf(text || attachments[0]?.name || '') });
  const message = newMessage({ role: 'user', content: text, attachments: attachments.length ? attachments : undefined });
  addMessage(message);
  answerTo(message.id);
}

export function stop(): void {
  for (const message of path.value) live.value.get(message.id)?.abort.abort();
}

// Another answer to the same question, beside the one there is.
export function regenerate(message: Message): void {
  answerTo(message.parent);
}

// The answer goes on where it ended.
export function continueAnswer(message: Message): void {
  if (message.toolCalls?.length || live.value.has(message.id)) return;
  void run(message, pathTo(messages.value, message.parent), currentSettings.value);
  messageChanged();
}

// The question asked otherwise, as a branch of its own.
export function editAndFork(message: Message, text: string): void {
  const fork = newMessage({ role: 'user', parent: message.parent, content: text, attachments: message.attachments });
  addMessage(fork);
  answerTo(fork.id);
}

// A branch that begins as the answer did, up to a token, takes another one there and goes on.
export function takeAlternative(message: Message, index: number, text: string): void {
  const tokens = message.tokens!.slice(0, index);
  const begin = message.content.slice(0, tokenOffsets(message.content, message.tokens!)[index]);
  const chosen = message.tokens![index].top.find((other) => other.text === text);
  answerTo(message.parent, {
    content: begin + text,
    reasoning: message.reasoning,
    reasoningMs: message.reasoningMs,
    reasoningTokens: message.reasoningTokens,
    tokens: [...tokens, { text, p: chosen?.p ?? 0, top: message.tokens![index].top }],
  });
}

// What a tool gave back; once every call has its result, the model goes on.
export function giveToolResult(call: ToolCall, text: string): void {
  const message = newMessage({ role: 'tool', content: text, toolCallId: call.id });
  addMessage(message);
  const answered = new Set(path.value.filter((entry) => entry.role === 'tool').map((entry) => entry.toolCallId));
  const asked = path.value.findLast((entry) => entry.toolCalls?.length)?.toolCalls ?? [];
  if (asked.every((entry) => answered.has(entry.id))) answerTo(message.id);
}

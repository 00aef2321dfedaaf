// Sends a request and streams the answer into its message. Views update at most once per frame. However the
// stream ends, the text received so far stays in the message and can be continued.
import { batch, effect, signal, type Signal } from '@preact/signals';
import { LostConnection, ServerError, streamChat, type ChatChunk, type WireToken } from './api';
import * as db from './db';
import { chooseModel, recordSpeed, sentenceOf } from './models';
import { store, streams } from './persist';
import {
  addMessage, changeConversation, conversation, isServerUnreachable, messageChanged, messages, model, newId, path, pathTo, props,
  refreshFigures, settings as currentSettings, showToast, startConversation, titleOf,
} from './state';
import type { Attachment, Message, NoticeKind, Progress, Settings, TokenChoice, ToolCall } from './types';

// State of an answer that is streaming.
export class StreamingAnswer {
  readonly progress: Signal<Progress | null> = signal(null);
  readonly rate = signal(0); // tokens per second so far
  readonly nTokens = signal(0);
  readonly phase = signal<'waiting' | 'prefill' | 'thinking' | 'answering'>('waiting');
  readonly abort = new AbortController();
  readonly views = new Set<() => void>();
  private isScheduled = false;
  private renderMs = 0;

  // After a slow frame, pause in proportion so that typing and scrolling stay responsive.
  schedule(): void {
    if (this.isScheduled) return;
    this.isScheduled = true;
    const pause = this.renderMs > 6 ? this.renderMs * 3 : 0;
    const render = () => {
      this.isScheduled = false;
      const begin = performance.now();
      for (const view of this.views) view();
      this.renderMs = performance.now() - begin;
    };
    if (document.hidden) setTimeout(render, 250);
    else if (pause > 0) setTimeout(() => requestAnimationFrame(render), pause);
    else requestAnimationFrame(render);
  }
}

export const live = signal<Map<string, StreamingAnswer>>(new Map());
export const isAnswering = () => path.value.some((message) => live.value.has(message.id));

// Uses a longer code fence than any fence inside the file.
function fenced(file: Attachment): string {
  const longest = Math.max(2, ...(file.text.match(/`{3,}/g) ?? []).map((fence) => fence.length));
  const fence = '`'.repeat(longest + 1);
  return `${file.name}\n${fence}\n${file.text}\n${fence}\n\n`;
}

export function textOf(message: Message): string {
  return (message.attachments ?? []).map(fenced).join('') + message.content;
}

// The part of a conversation that is sent: everything, unless the user chose to leave out the oldest messages.
export function sentPart(list: Message[]): Message[] {
  const cut = conversation.peek()?.context;
  const at = cut ? list.findIndex(({ id }) => id === cut.from) : -1;
  if (!cut || at < 1) return list;
  const [first, ...rest] = list.slice(at);
  const summary = cut.summary ? `Summary of our conversation so far:\n${cut.summary}\n\n` : '';
  return [{ ...first, content: summary + first.content }, ...rest];
}

// Templates expect turns to alternate; after a message was deleted, its neighbors are one turn.
function joinTurns(list: Message[]): Message[] {
  const out: Message[] = [];
  for (const message of list) {
    const last = out.at(-1);
    const isSameTurn = last && last.role === message.role && message.role !== 'tool' && !last.toolCalls?.length;
    if (isSameTurn) out[out.length - 1] = { ...message, content: `${textOf(last)}\n\n${textOf(message)}`, attachments: undefined };
    else out.push(message);
  }
  return out;
}

// The conversation in the format of the API.
function wireMessages(messages: Message[], settings: Settings): unknown[] {
  const list = joinTurns(messages);
  const out: unknown[] = settings.system ? [{ role: 'system', content: settings.system }] : [];
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

const kSamplingFields = [
  'temperature', 'top_p', 'top_k', 'min_p', 'repeat_penalty', 'frequency_penalty', 'presence_penalty', 'seed', 'max_tokens',
  'thinking_budget',
] as const;

export function requestBody(list: Message[], settings: Settings, modelName: string | undefined, isContinuation: boolean): object {
  const body: Record<string, unknown> = {
    messages: wireMessages(list, settings),
    stream: true,
    stream_options: { include_usage: true },
    return_progress: true,
  };
  if (modelName) body.model = modelName;
  const recommended = props.value?.models.find((entry) => entry.name === modelName)?.recommended_sampling ?? {};
  for (const name of kSamplingFields) {
    const value = settings[name] ?? recommended[name];
    if (value !== undefined) body[name] = value;
  }
  if (settings.effort) body.reasoning_effort = settings.effort;
  else if (settings.thinking !== undefined) body.enable_thinking = settings.thinking;
  if (settings.probabilities) Object.assign(body, { logprobs: true, top_logprobs: 6 });
  if (settings.tools?.trim()) body.tools = JSON.parse(settings.tools);
  if (isContinuation) body.continue_final_message = true;
  return body;
}

// Tokens may end inside a UTF-8 character; the tokens of one character are merged and have no alternatives.
export class TokenReader {
  private bytes: number[] = [];
  private p = 1;
  constructor(private readonly out: TokenChoice[]) {}

  add(token: WireToken): void {
    const tokenBytes = token.bytes ?? [...new TextEncoder().encode(token.token)];
    const startsCharacter = this.bytes.length === 0;
    this.bytes.push(...tokenBytes);
    this.p = Math.min(this.p, Math.exp(token.logprob));
    const text = decodeUtf8(this.bytes) ?? (isIncompleteUtf8(this.bytes) ? null : new TextDecoder().decode(new Uint8Array(this.bytes)));
    if (text === null) return;
    const top = startsCharacter ? (token.top_logprobs ?? []) : [];
    this.out.push({
      text,
      p: this.p,
      top: top.flatMap((other) => {
        const shown = other.bytes ? decodeUtf8(other.bytes) : other.token;
        return shown === null ? [] : [{ text: shown, p: Math.exp(other.logprob) }];
      }),
    });
    this.bytes = [];
    this.p = 1;
  }
}

// Offset of each token in the content; -1 for tokens outside it, such as the end-of-thinking marker.
export function tokenOffsets(content: string, tokens: TokenChoice[]): number[] {
  let at = 0;
  return tokens.map(({ text }) => {
    const shown = at === 0 && !content.startsWith(text) ? text.trimStart() : text;
    if (!shown || !content.startsWith(shown, at)) return -1;
    at += shown.length;
    return at - shown.length;
  });
}

// The tokens; content received without probabilities becomes a single piece.
export function withRest(content: string, tokens: TokenChoice[]): TokenChoice[] {
  const offsets = tokenOffsets(content, tokens);
  const last = offsets.findLastIndex((offset) => offset >= 0);
  const shown = last < 0 ? '' : tokens[last].text;
  const end = last < 0 ? 0 : offsets[last] + (content.startsWith(shown, offsets[last]) ? shown : shown.trimStart()).length;
  return end < content.length ? [...tokens, { text: content.slice(end), p: 1, top: [] }] : tokens;
}

// Whether these bytes are an incomplete UTF-8 sequence that more bytes could complete.
function isIncompleteUtf8(bytes: number[]): boolean {
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(new Uint8Array(bytes), { stream: true });
    return true;
  } catch {
    return false;
  }
}

function decodeUtf8(bytes: number[]): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(new Uint8Array(bytes));
  } catch {
    return null;
  }
}

// Applies stream events to the message.
class MessageBuilder {
  private reasoningBegin = 0;
  private readonly reasoningBefore: { ms: number; tokens: number }; // of the answer being continued
  private firstTokenAt = 0;
  private nTokensAtFirst = 0;
  private rateUpdatedAt = 0;
  private readonly tokens: TokenReader | null;
  private readonly calls: ToolCall[] = [];
  finish: string | null = null;

  constructor(
    private readonly message: Message,
    private readonly state: StreamingAnswer,
    wantsTokens: boolean,
  ) {
    // Content without probabilities is a single piece.
    if (wantsTokens) message.tokens = withRest(message.content, message.tokens ?? []);
    this.tokens = wantsTokens ? new TokenReader(message.tokens!) : null;
    this.reasoningBefore = { ms: message.reasoningMs ?? 0, tokens: message.reasoningTokens ?? 0 };
  }

  apply(chunk: ChatChunk): void {
    const { message, state } = this;
    if (chunk.prompt_progress) {
      state.progress.value = chunk.prompt_progress;
      if (state.phase.value === 'waiting') state.phase.value = 'prefill';
    }
    const choice = chunk.choices[0];
    const delta = choice?.delta;
    if (delta?.content || delta?.reasoning_content || delta?.tool_calls) this.updateRate(chunk.completion_tokens);
    if (delta?.reasoning_content) this.addReasoning(delta.reasoning_content);
    if (delta?.content) this.addContent(delta.content);
    for (const call of delta?.tool_calls ?? []) {
      this.calls[call.index] ??= { id: '', name: '', arguments: '' };
      const target = this.calls[call.index];
      target.id ||= call.id ?? '';
      target.name ||= call.function?.name ?? '';
      target.arguments += call.function?.arguments ?? '';
      message.toolCalls = this.calls.filter(Boolean);
    }
    if (delta?.content && this.tokens) for (const token of choice.logprobs?.content ?? []) this.tokens.add(token);
    if (choice?.finish_reason) this.finish = choice.finish_reason;
    if (chunk.timings) message.timings = chunk.timings;
    if (chunk.usage) {
      message.usage = chunk.usage;
      const n = this.reasoningBefore.tokens + (chunk.usage.completion_tokens_details?.reasoning_tokens ?? 0);
      message.reasoningTokens = n || undefined;
    }
  }

  private addReasoning(text: string): void {
    this.reasoningBegin ||= performance.now();
    this.message.reasoning = (this.message.reasoning ?? '') + text;
    this.message.reasoningTokens = this.reasoningBefore.tokens + this.state.nTokens.peek();
    this.message.reasoningMs = this.reasoningBefore.ms + performance.now() - this.reasoningBegin;
    this.state.phase.value = 'thinking';
  }

  private addContent(text: string): void {
    if (this.reasoningBegin && this.state.phase.peek() === 'thinking') {
      this.message.reasoningMs = this.reasoningBefore.ms + performance.now() - this.reasoningBegin;
    }
    this.message.content += text;
    this.state.phase.value = 'answering';
  }

  // An event may carry several tokens; the server sends the running count.
  private updateRate(nSoFar: number | undefined): void {
    const now = performance.now();
    const n = nSoFar ?? this.state.nTokens.peek() + 1;
    if (!this.firstTokenAt) {
      this.firstTokenAt = now;
      this.nTokensAtFirst = n;
    }
    batch(() => {
      this.state.nTokens.value = n;
      const elapsed = now - this.firstTokenAt;
      if (elapsed > 200 && now - this.rateUpdatedAt > 250) {
        this.state.rate.value = ((n - this.nTokensAtFirst) * 1000) / elapsed;
        this.rateUpdatedAt = now;
      }
    });
    this.state.schedule();
  }
}

function noticeOf(error: unknown, wasStopped: boolean): { kind: NoticeKind; text: string } {
  if (wasStopped) return { kind: 'stopped', text: 'Stopped.' };
  if (error instanceof LostConnection) return { kind: 'lost', text: error.message };
  if (error instanceof ServerError && error.code === 'context_length_exceeded') return { kind: 'context', text: 'This conversation is longer than the context of the model.' };
  if (error instanceof ServerError && error.status === 503 && !model.value) return { kind: 'model', text: 'No model is loaded.' };
  return { kind: 'error', text: sentenceOf(error instanceof Error ? error.message : String(error)) };
}

function setFinishNotice(message: Message, finish: string | null): void {
  const context = props.value?.models.find((entry) => entry.name === message.model)?.context ?? 0;
  if (finish === 'length' && context > 0 && (message.usage?.total_tokens ?? 0) >= context - 1) {
    message.notice = { kind: 'context', text: `The context of ${context.toLocaleString()} tokens is full.` };
  } else if (finish === 'length') {
    message.notice = { kind: 'length', text: 'The answer reached its token limit.' };
  } else if (!message.content.trim() && !message.toolCalls?.length) {
    message.notice = { kind: 'empty', text: 'The model returned an empty answer.' };
  }
}

const kSaveEveryMs = 300;

// Sends `history` and streams the answer into `message`. Never throws: errors become the message's notice.
export async function streamAnswer(message: Message, history: Message[], settings: Settings): Promise<void> {
  const state = new StreamingAnswer();
  const isContinuation = Boolean(message.content || message.reasoning);
  message.writing = true;
  message.notice = message.finish = message.usage = undefined;
  message.model ??= settings.model ?? model.value?.name;
  const isServed = props.value?.models.some((entry) => entry.name === message.model);
  if (!isServed) message.model = model.value?.name ?? message.model;
  live.value = new Map(live.value).set(message.id, state);
  let resolveEnded = () => {};
  const ended = new Promise<void>((resolve) => (resolveEnded = resolve));
  streams.set(message.id, { message, stop: () => state.abort.abort(), ended });
  const timer = setInterval(() => void store([], [message]), kSaveEveryMs);
  try {
    if (message.hasTokens) message.tokens ??= await db.tokensOf(message.id);
    const builder = new MessageBuilder(message, state, Boolean(settings.probabilities));
    const body = requestBody(isContinuation ? [...history, message] : history, settings, message.model, isContinuation);
    await streamChat(body, state.abort.signal, (chunk) => builder.apply(chunk));
    message.finish = builder.finish ?? undefined;
    setFinishNotice(message, builder.finish);
  } catch (error) {
    message.notice = noticeOf(error, state.abort.signal.aborted);
  }
  recordSpeed(message);
  clearInterval(timer);
  message.writing = false;
  streams.delete(message.id);
  if (message.notice?.kind !== 'lost') recordLost(message, null);
  else if (!lost.has(message.id)) recordLost(message, -1);
  await store([], [message]);
  resolveEnded();
  const others = new Map(live.value);
  others.delete(message.id);
  batch(() => {
    live.value = others;
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

function startAnswer(parent: string | null, change: Partial<Message> = {}): void {
  const message = newMessage({ parent, ...change });
  addMessage(message);
  void streamAnswer(message, sentPart(pathTo(messages.value, parent)), currentSettings.value);
}

// Returns whether the user message was stored; the answer streams independently.
export function send(text: string, attachments: Attachment[]): Promise<boolean> {
  if (!conversation.value) startConversation(text || attachments[0]?.name || '');
  const entry = conversation.value!;
  if (!entry.head) changeConversation(entry.id, { title: titleOf(text || attachments[0]?.name || '') });
  const message = newMessage({ role: 'user', content: text, attachments: attachments.length ? attachments : undefined });
  const isStored = addMessage(message);
  startAnswer(message.id);
  return isStored;
}

export function stop(): void {
  for (const message of path.value) live.value.get(message.id)?.abort.abort();
}

// Regenerates the answer as a sibling of the existing one.
export function regenerate(message: Message): void {
  startAnswer(message.parent);
}

// The same with another model, which answers the conversation from then on; it is loaded first if it is only installed.
export async function regenerateWith(message: Message, modelName: string): Promise<void> {
  const error = await chooseModel(modelName);
  if (error) showToast(error);
  else if (conversation.value?.id === message.conversation) regenerate(message);
}

// Continues the answer where it ended. An incomplete tool call cannot be continued and is requested again.
export function continueAnswer(message: Message): void {
  if (live.value.has(message.id)) return;
  if (message.toolCalls?.length) return regenerate(message);
  void streamAnswer(message, sentPart(pathTo(messages.value, message.parent)), currentSettings.value);
  messageChanged();
}

// Answers whose connection was lost in this tab, with their length when they were last resumed; a reload keeps them. Once the
// server is back, the displayed one is resumed, unless the last attempt brought no text: it may be what brings the server down.
const kLostName = 'zinc.lost';
const lost = new Map<string, number>(JSON.parse(sessionStorage.getItem(kLostName) ?? '[]') as [string, number][]);
const lengthOf = ({ content, reasoning = '' }: Message) => content.length + reasoning.length;
function recordLost({ id }: Message, length: number | null): void {
  if (length === null && !lost.delete(id)) return;
  if (length !== null) lost.set(id, length);
  try {
    sessionStorage.setItem(kLostName, JSON.stringify([...lost]));
  } catch {
    // Storage is full: known until the page is reloaded.
  }
}
export const continuesWhenBack = (message: Message) =>
  lost.has(message.id) && lost.get(message.id) !== lengthOf(message) && path.value.at(-1)?.id === message.id;

let wasUnreachable = false;
effect(() => {
  const isBack = wasUnreachable && !isServerUnreachable.value;
  wasUnreachable = isServerUnreachable.value;
  const last = isBack ? path.peek().at(-1) : undefined;
  if (!last || last.notice?.kind !== 'lost' || !continuesWhenBack(last)) return;
  recordLost(last, lengthOf(last));
  queueMicrotask(() => continueAnswer(last)); // not inside the effect
});

// Sends an edited user message as a new branch.
export function editAndFork(message: Message, text: string): void {
  const fork = newMessage({ role: 'user', parent: message.parent, content: text, attachments: message.attachments });
  addMessage(fork);
  startAnswer(fork.id);
}

// The beginning of an answer that equals this one up to a token and has an alternative token there.
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

// Starts a branch that continues from that token.
export function branchWithAlternative(message: Message, begin: Partial<Message>): void {
  startAnswer(message.parent, begin);
}

// Stores a tool result; once every call has its result, the model continues.
export function addToolResult(call: ToolCall, text: string): void {
  const message = newMessage({ role: 'tool', content: text, toolCallId: call.id });
  void addMessage(message);
  const at = path.value.findLastIndex((entry) => entry.toolCalls?.length);
  const answered = new Set(path.value.slice(at + 1).map((entry) => entry.toolCallId)); // ids may repeat in earlier messages
  const calls = path.value[at]?.toolCalls ?? [];
  if (calls.every((entry) => answered.has(entry.id))) startAnswer(message.id);
}

// Talks to the server the page came from, and to nobody else.
import { signal } from '@preact/signals';
import type { Library, Progress, Props, Figures, Timings, Usage } from './types';

export class ServerError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly code: string | null,
  ) {
    super(message);
  }
}

// The connection was cut, or there was none.
export class LostConnection extends Error {}

const kKeyName = 'zinc.key';
export const keyIsWanted = signal(false);
export const keyWasWrong = signal(false);
let keyWaiters: (() => void)[] = [];

export function giveKey(key: string): void {
  localStorage.setItem(kKeyName, key);
  keyIsWanted.value = false;
  for (const go of keyWaiters.splice(0)) go();
}

const storedKey = () => localStorage.getItem(kKeyName);

async function ask(path: string, init: RequestInit): Promise<Response> {
  for (;;) {
    const key = storedKey();
    const headers = { 'content-type': 'application/json', ...(key ? { authorization: `Bearer ${key}` } : {}) };
    let response: Response;
    try {
      response = await fetch(path, { ...init, headers, credentials: 'omit' });
    } catch (error) {
      if (init.signal?.aborted) throw error;
      throw new LostConnection('the server cannot be reached');
    }
    if (response.status !== 401) return response;
    if (storedKey() !== key) continue; // another one was given meanwhile
    keyWasWrong.value = key !== null;
    keyIsWanted.value = true;
    await new Promise<void>((go) => keyWaiters.push(go));
  }
}

async function failure(response: Response): Promise<ServerError> {
  let message = `the server answered ${response.status}`;
  let code: string | null = null;
  try {
    const body = (await response.json()) as { error?: { message?: string; code?: string | null } };
    message = body.error?.message ?? message;
    code = body.error?.code ?? null;
  } catch {
    // No JSON: the status has to do.
  }
  return new ServerError(message, response.status, code);
}

export async function call<T>(path: string, body?: unknown): Promise<T> {
  const response = await ask(path, body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) });
  if (!response.ok) throw await failure(response);
  try {
    return (await response.json()) as T;
  } catch {
    throw new LostConnection('the connection was lost');
  }
}

export interface Served {
  id: string;
  figures?: Figures; // of those that are loaded
}
export const getProps = () => call<Props>('/props');
export const getLibrary = () => call<Library>('/models');
export const getFigures = () => call<{ data: Served[] }>('/v1/models');

export interface WireToken {
  token: string;
  logprob: number;
  bytes?: number[];
  top_logprobs?: WireToken[];
}

export interface WireDelta {
  content?: string | null;
  reasoning_content?: string | null;
  tool_calls?: { index: number; id?: string; function?: { name?: string; arguments?: string } }[];
}

export interface ChatChunk {
  choices: {
    delta: WireDelta;
    logprobs?: { content: WireToken[] } | null;
    finish_reason: string | null;
  }[];
  usage?: Usage | null;
  timings?: Timings;
  prompt_progress?: Progress;
  completion_tokens?: number; // so far
  error?: { message: string; code?: string | null };
}

const kSilenceMs = 20_000;
const kSecondLookMs = 2000;

// Whether the server still works on something. A connection may end without a word: a host that sleeps, a cable that is
// out. Then the stream is silent for good, while the server cannot be reached or knows of no request any more.
async function isWorking(): Promise<boolean> {
  const timeout = new AbortController();
  const timer = setTimeout(() => timeout.abort(), kSilenceMs / 2);
  try {
    const response = await ask('/v1/models', { signal: timeout.signal });
    const { data } = (await response.json()) as { data: Served[] };
    return data.some(({ figures }) => figures && figures.active_requests + figures.queued_requests > 0);
  } catch {
    return false;
  } finally {
    clearTimeout(timer);
  }
}

// Calls `lost` when nothing has been heard for long and the server does not work on it. heard() begins anew.
function watchSilence(lost: () => void): { heard: () => void; stop: () => void } {
  let timer: ReturnType<typeof setTimeout>;
  let turn = 0;
  const begin = () => {
    clearTimeout(timer);
    timer = setTimeout(look, kSilenceMs);
  };
  const look = async () => {
    const mine = ++turn;
    let works = await isWorking();
    // Between the end of an answer and its last event there is a moment in which no request is known.
    if (!works) works = await new Promise<boolean>((resolve) => setTimeout(() => resolve(isWorking()), kSecondLookMs));
    if (mine !== turn) return;
    if (works) begin();
    else lost();
  };
  begin();
  return {
    heard: () => {
      ++turn;
      begin();
    },
    stop: () => {
      ++turn;
      clearTimeout(timer);
    },
  };
}

// Calls `take` with every event of the answer. Ends when the answer is whole; anything else is an error.
export async function streamChat(body: unknown, signal: AbortSignal, take: (chunk: ChatChunk) => void): Promise<void> {
  const silence = new AbortController();
  const either = new AbortController();
  for (const one of [signal, silence.signal]) one.addEventListener('abort', () => either.abort());
  if (signal.aborted) either.abort();
  const watch = watchSilence(() => silence.abort());
  try {
    const response = await ask('/v1/chat/completions', { method: 'POST', body: JSON.stringify(body), signal: either.signal });
    if (!response.ok) throw await failure(response);
    await readEvents(response.body!.pipeThrough(new TextDecoderStream()).getReader(), watch.heard, take);
  } catch (error) {
    if (signal.aborted || error instanceof ServerError || error instanceof LostConnection) throw error;
    throw new LostConnection(silence.signal.aborted ? 'the server is silent' : 'the connection was lost');
  } finally {
    watch.stop();
  }
}

async function readEvents(reader: ReadableStreamDefaultReader<string>, heard: () => void, take: (chunk: ChatChunk) => void): Promise<void> {
  let rest = '';
  for (;;) {
    const part = await reader.read();
    if (part.done) throw new LostConnection('the connection was lost before the answer was complete');
    heard();
    rest += part.value;
    let from = 0;
    for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n', from)) {
      const line = rest.slice(from, end);
      from = end + 2;
      if (!line.startsWith('data: ')) continue;
      const data = line.slice(6);
      if (data === '[DONE]') return;
      const chunk = JSON.parse(data) as ChatChunk;
      if (chunk.error) throw new ServerError(chunk.error.message, 500, chunk.error.code ?? null);
      take(chunk);
    }
    rest = rest.slice(from);
  }
}

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

function headers(): Record<string, string> {
  const key = localStorage.getItem(kKeyName);
  return { 'content-type': 'application/json', ...(key ? { authorization: `Bearer ${key}` } : {}) };
}

async function ask(path: string, init: RequestInit): Promise<Response> {
  for (;;) {
    let response: Response;
    try {
      response = await fetch(path, { ...init, headers: headers(), credentials: 'omit' });
    } catch (error) {
      if (init.signal?.aborted) throw error;
      throw new LostConnection('the server cannot be reached');
    }
    if (response.status !== 401) return response;
    keyWasWrong.value = localStorage.getItem(kKeyName) !== null;
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

export const getProps = () => call<Props>('/props');
export const getLibrary = () => call<Library>('/models');
export const getFigures = () => call<{ data: { id: string; figures: Figures }[] }>('/v1/models');

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
  error?: { message: string; code?: string | null };
}

// Calls `take` with every event of the answer. Ends when the answer is whole; anything else is an error.
export async function streamChat(body: unknown, signal: AbortSignal, take: (chunk: ChatChunk) => void): Promise<void> {
  const response = await ask('/v1/chat/completions', { method: 'POST', body: JSON.stringify(body), signal });
  if (!response.ok) throw await failure(response);
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    let part: ReadableStreamReadResult<string>;
    try {
      part = await reader.read();
    } catch (error) {
      if (signal.aborted) throw error;
      throw new LostConnection('the connection was lost');
    }
    if (part.done) throw new LostConnection('the connection was lost before the answer was complete');
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

// The only file that talks to the server; requests go to the page's own origin.
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

// The connection was lost or could not be established.
export class LostConnection extends Error {}

const kKeyName = 'zinc.key';
export const isKeyRequired = signal(false);
export const wasKeyRejected = signal(false);
let keyWaiters: (() => void)[] = [];

export function setApiKey(key: string): void {
  localStorage.setItem(kKeyName, key);
  isKeyRequired.value = false;
  for (const resume of keyWaiters.splice(0)) resume();
}

const storedKey = () => localStorage.getItem(kKeyName);

async function request(path: string, init: RequestInit): Promise<Response> {
  for (;;) {
    const key = storedKey();
    const headers = { 'content-type': 'application/json', ...(key ? { authorization: `Bearer ${key}` } : {}) };
    let response: Response;
    try {
      response = await fetch(path, { ...init, headers, credentials: 'omit' });
    } catch (error) {
      if (init.signal?.aborted) throw error;
      throw new LostConnection('The server cannot be reached.');
    }
    if (response.status !== 401) return response;
    if (storedKey() !== key) continue; // the key changed in the meantime
    wasKeyRejected.value = key !== null;
    isKeyRequired.value = true;
    await new Promise<void>((resolve) => keyWaiters.push(resolve));
  }
}

async function serverErrorOf(response: Response): Promise<ServerError> {
  let message = `the server returned status ${response.status}`;
  let code: string | null = null;
  try {
    const body = (await response.json()) as { error?: { message?: string; code?: string | null } };
    message = body.error?.message ?? message;
    code = body.error?.code ?? null;
  } catch {
    // The body is not JSON; report the status instead.
  }
  return new ServerError(message, response.status, code);
}

export async function call<T>(path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const response = await request(path, body === undefined ? {} : { method: 'POST', body: JSON.stringify(body), signal });
  if (!response.ok) throw await serverErrorOf(response);
  try {
    return (await response.json()) as T;
  } catch {
    throw new LostConnection('The connection to the server was lost.');
  }
}

export interface ServedModel {
  id: string;
  figures?: Figures; // of loaded models
}
export const getProps = () => call<Props>('/props');
export const getLibrary = () => call<Library>('/models');
// The prompt that the chat template makes of a chat request, and its length in tokens.
export const applyTemplate = (body: object) => call<{ prompt: string; count: number }>('/apply-template', body);
export const getFigures = () => call<{ data: ServedModel[] }>('/v1/models');

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
const kRecheckMs = 2000;

// Whether the server still has running requests. A connection can die without an error (a sleeping host, an unplugged
// cable): the stream stays silent, and the server is unreachable or has no running request.
async function hasRunningRequests(): Promise<boolean> {
  const timeout = new AbortController();
  const timer = setTimeout(() => timeout.abort(), kSilenceMs / 2);
  try {
    const response = await request('/v1/models', { signal: timeout.signal });
    const { data } = (await response.json()) as { data: ServedModel[] };
    return data.some(({ figures }) => figures && figures.active_requests + figures.queued_requests > 0);
  } catch {
    return false;
  } finally {
    clearTimeout(timer);
  }
}

// Watchdog of a stream: calls `onTimeout` after a long silence while the server has no running request. reset() restarts the
// timer.
function startWatchdog(onTimeout: () => void): { reset: () => void; stop: () => void } {
  let timer: ReturnType<typeof setTimeout>;
  let nChecks = 0;
  const begin = () => {
    clearTimeout(timer);
    timer = setTimeout(recheck, kSilenceMs);
  };
  const recheck = async () => {
    const check = ++nChecks;
    let isBusy = await hasRunningRequests();
    // Shortly before its last event a request is already gone from the server's list.
    if (!isBusy) isBusy = await new Promise<boolean>((resolve) => setTimeout(() => resolve(hasRunningRequests()), kRecheckMs));
    if (check !== nChecks) return; // data arrived in the meantime
    if (isBusy) begin();
    else onTimeout();
  };
  begin();
  return {
    reset: () => {
      ++nChecks;
      begin();
    },
    stop: () => {
      ++nChecks;
      clearTimeout(timer);
    },
  };
}

// Calls `onChunk` with every event of the stream. Resolves when the answer is complete; throws otherwise.
export async function streamChat(body: unknown, signal: AbortSignal, onChunk: (chunk: ChatChunk) => void): Promise<void> {
  const timeout = new AbortController();
  const either = new AbortController();
  for (const source of [signal, timeout.signal]) source.addEventListener('abort', () => either.abort());
  if (signal.aborted) either.abort();
  const watchdog = startWatchdog(() => timeout.abort());
  try {
    const response = await request('/v1/chat/completions', { method: 'POST', body: JSON.stringify(body), signal: either.signal });
    if (!response.ok) throw await serverErrorOf(response);
    await readEvents(response.body!.pipeThrough(new TextDecoderStream()).getReader(), watchdog.reset, onChunk);
  } catch (error) {
    if (signal.aborted || error instanceof ServerError || error instanceof LostConnection) throw error;
    throw new LostConnection(timeout.signal.aborted ? 'The server stopped responding.' : 'The connection to the server was lost.');
  } finally {
    watchdog.stop();
  }
}

async function readEvents(reader: ReadableStreamDefaultReader<string>, onData: () => void, onChunk: (chunk: ChatChunk) => void): Promise<void> {
  let rest = '';
  for (;;) {
    const part = await reader.read();
    if (part.done) throw new LostConnection('The connection to the server was lost before the answer was complete.');
    onData();
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
      onChunk(chunk);
    }
    rest = rest.slice(from);
  }
}

// Loading, unloading and downloading models. Actions return what went wrong as a sentence of the page, empty if nothing did,
// so that it is displayed where the action was started.
import { signal } from '@preact/signals';
import { call, LostConnection } from './api';
import { saveSmall } from './persist';
import { changeSettings, library, props, refreshLibrary, refreshProps } from './state';
import type { LibraryModel, Message } from './types';

// The model that is being loaded by this page.
export const loadingModel = signal<string | null>(null);
// Or by the server at its start; null: none.
export const loadingName = () => loadingModel.value ?? (props.value?.models.length === 0 && library.value?.activating ? library.value.activating : null);

// A server's message as a sentence. Addresses are long and say nothing to most readers: only their host is kept.
export function sentenceOf(text: string): string {
  const short = text.replace(/https?:\/\/([^\s/'"]+)[^\s'"]*/g, '$1').trim();
  return short.charAt(0).toUpperCase() + short.slice(1) + (/[.!?…]$/.test(short) ? '' : '.');
}

export async function attempt(action: () => Promise<unknown>): Promise<string> {
  try {
    await action();
    return '';
  } catch (error) {
    return error instanceof LostConnection ? error.message : sentenceOf(error instanceof Error ? error.message : String(error));
  } finally {
    await refreshLibrary().catch(() => undefined);
  }
}

export async function loadModel(entry: LibraryModel, keepOthers: boolean): Promise<string> {
  loadingModel.value = entry.id;
  const begun = setTimeout(() => void refreshLibrary().catch(() => undefined), 150);
  const error = await attempt(() => call('/v1/models/activate', { model: entry.id, keep_others: keepOthers }));
  clearTimeout(begun);
  await refreshProps().catch(() => undefined);
  loadingModel.value = null;
  return error && `${entry.display_name} could not be loaded: ${error}`;
}

export async function unloadModel(entry: LibraryModel): Promise<string> {
  const error = await attempt(() => call('/v1/models/unload', { model: entry.served_as ?? entry.id }));
  await refreshProps().catch(() => undefined);
  return error;
}

export async function removeModel(entry: LibraryModel): Promise<string> {
  const error = await attempt(() => call('/v1/models/remove', { model: entry.id, force: entry.active }));
  await refreshProps().catch(() => undefined);
  return error;
}

export async function downloadModel(name: string): Promise<string> {
  const error = await attempt(() => call('/v1/models/pull', { model: name }));
  if (!/^Unknown model/.test(error)) return error;
  return `No model is called “${name}”. Enter a name from the list, hf:ORG/REPO:FILE, or the URL of a .gguf file.`;
}

export const cancelDownload = (name: string) => attempt(() => call('/v1/models/cancel', { model: name }));

// Models that answer when chosen: the loaded ones, and installed ones, which are loaded then.
export interface ModelChoice {
  name: string;
  isLoaded: boolean;
}
export function modelChoices(): ModelChoice[] {
  const loaded = (props.value?.models ?? []).map(({ name }) => ({ name, isLoaded: true }));
  const installed = (library.value?.data ?? []).filter((entry) => entry.installed && !entry.active && !entry.fit.startsWith('too'));
  return [...loaded, ...installed.map(({ id }) => ({ name: id, isLoaded: false }))];
}

// Makes a model answer in the open conversation; loads it first if it is only installed.
export async function chooseModel(name: string): Promise<string> {
  const entry = library.value?.data.find((other) => other.id === name && !other.active);
  const isServed = props.value?.models.some((other) => other.name === name);
  const error = entry && !isServed ? await loadModel(entry, false) : '';
  if (!error) changeSettings({ model: library.value?.data.find((other) => other.id === name)?.served_as ?? name });
  return error;
}

// How many parameters a token uses: "30B-A3B" activates 3 of 30 billion.
const kUnits: Record<string, number> = { M: 1e6, B: 1e9 };
const parse = (match: RegExpExecArray | null) => (match ? Number(match[1]) * kUnits[match[2]] : 0);
export function parametersOf({ parameters }: { parameters: string }): { total: number; active: number } {
  const total = parse(/^E?([\d.]+)([MB])/.exec(parameters)); // E4B: effective parameters
  return { total, active: parse(/A([\d.]+)([MB])$/.exec(parameters)) || total };
}

// Decoding reads every active weight once per token, so the speed of one model predicts that of the others.
const kSpeedName = 'zinc.bytes_per_second';
const bytesPerSecond = signal(Number(localStorage.getItem(kSpeedName) ?? 0));
const kMinTokens = 16; // fewer say little about the speed

function bytesPerToken(entry: LibraryModel): number {
  const { total, active } = parametersOf(entry);
  return entry.size_bytes * (total > 0 ? active / total : 1);
}

export function recordSpeed({ model, timings }: Message): void {
  const entry = library.value?.data.find((other) => (other.served_as ?? other.id) === model);
  if (!entry?.size_bytes || !timings || timings.predicted_n < kMinTokens) return;
  bytesPerSecond.value = timings.predicted_per_second * bytesPerToken(entry);
  saveSmall(kSpeedName, String(bytesPerSecond.value));
}

// Tokens per second to expect on this machine; 0: unknown.
export const expectedSpeed = (entry: LibraryModel) => (entry.size_bytes > 0 ? bytesPerSecond.value / bytesPerToken(entry) : 0);

// Presets: a system prompt and sampling under a name, kept in this browser.
import { effect, signal } from '@preact/signals';
import { saveSmall } from './persist';
import { changeSettings } from './state';
import type { Settings } from './types';

export interface Preset {
  name: string;
  settings: Partial<Settings>;
  isBuiltIn?: boolean;
}

// Everything a preset sets; what it leaves out is reset.
const kFields = [
  'system', 'temperature', 'top_p', 'top_k', 'min_p', 'repeat_penalty', 'frequency_penalty', 'presence_penalty', 'max_tokens', 'thinking_budget', 'seed',
] as const satisfies (keyof Settings)[];

export const kDefaultPreset = 'Defaults of the model';
const kBuiltIn: Preset[] = [
  { name: kDefaultPreset, settings: {}, isBuiltIn: true },
  { name: 'Precise', settings: { temperature: 0 }, isBuiltIn: true },
  { name: 'Creative', settings: { temperature: 1.1, min_p: 0.05, top_p: 1, top_k: 0 }, isBuiltIn: true },
];

const kStoreName = 'zinc.presets';
function storedPresets(): Preset[] {
  try {
    return (JSON.parse(localStorage.getItem(kStoreName) ?? '[]') as Preset[]).filter(({ name, settings }) => typeof name === 'string' && settings);
  } catch {
    return [];
  }
}
export const presets = signal<Preset[]>([...kBuiltIn, ...storedPresets()]);
effect(() => saveSmall(kStoreName, JSON.stringify(presets.value.filter(({ isBuiltIn }) => !isBuiltIn))));

export const isApplied = (preset: Preset, settings: Settings) => kFields.every((name) => preset.settings[name] === settings[name]);

export function applyPreset(name: string): void {
  const chosen = presets.value.find((preset) => preset.name === name);
  if (chosen) changeSettings(Object.fromEntries(kFields.map((field) => [field, chosen.settings[field]])));
}

// A preset of the same name is replaced, unless it is built in.
export function savePreset(name: string, settings: Settings): void {
  const taken = kBuiltIn.some((preset) => preset.name === name) ? `${name} (own)` : name;
  const values = Object.fromEntries(kFields.filter((field) => settings[field] !== undefined).map((field) => [field, settings[field]]));
  presets.value = [...presets.value.filter((preset) => preset.name !== taken), { name: taken, settings: values }];
}

export const deletePreset = (name: string) => (presets.value = presets.value.filter((preset) => preset.isBuiltIn || preset.name !== name));

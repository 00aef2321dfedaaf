// Settings of a conversation. An empty field shows and uses the default.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { applyPreset, deletePreset, isApplied, kDefaultPreset, presets, savePreset } from '../presets';
import { changeSettings, conversation, model, panel, props, settings } from '../state';
import { templateSystemPrompt } from '../system_prompt';
import { thinkingOf } from '../thinking';
import type { Settings } from '../types';
import { Dialog } from './dialog';

interface Field {
  name: keyof Settings;
  label: string;
  hint: string;
  min?: number;
  max?: number;
  sliderMax?: number; // if the slider covers only the usual values
  step: number;
  fallback: string;
  hasSlider?: boolean;
  needsThinking?: boolean; // only for models that think
}

const kFields: Field[] = [
  { name: 'temperature', label: 'Temperature', hint: '0: always the likeliest word', min: 0, max: 2, step: 0.05, fallback: '1', hasSlider: true },
  { name: 'top_p', label: 'Top p', hint: '1 is off', min: 0, max: 1, step: 0.01, fallback: '1', hasSlider: true },
  { name: 'top_k', label: 'Top k', hint: '0 is off', min: 0, step: 1, fallback: '0' },
  { name: 'min_p', label: 'Min p', hint: '0 is off', min: 0, max: 1, step: 0.01, fallback: '0', hasSlider: true },
  { name: 'repeat_penalty', label: 'Repeat penalty', hint: '1 is off', min: 0.01, max: 100, step: 0.01, fallback: '1', sliderMax: 2, hasSlider: true },
  { name: 'frequency_penalty', label: 'Frequency penalty', hint: '0 is off', min: -2, max: 2, step: 0.05, fallback: '0' },
  { name: 'presence_penalty', label: 'Presence penalty', hint: '0 is off', min: -2, max: 2, step: 0.05, fallback: '0' },
  { name: 'max_tokens', label: 'Max answer tokens', hint: 'thinking included', min: 1, step: 1, fallback: 'context limit' },
  { name: 'thinking_budget', label: 'Max thinking tokens', hint: 'then it answers', min: 0, step: 1, fallback: 'no limit', needsThinking: true },
  { name: 'seed', label: 'Seed', hint: 'same seed, same answer', min: 0, step: 1, fallback: 'random' },
];

// The value of an empty field: the model's recommended one, else the server's default.
function fallbackOf(field: Field, recommended: Record<string, number | string>): string {
  const value = recommended[field.name] ?? props.value?.default_sampling[field.name];
  return typeof value === 'number' ? String(Number(value.toFixed(4))) : field.fallback;
}

interface SamplingProps {
  values: Settings;
  change: (change: Partial<Settings>) => void;
  modelName?: string;
}

// Values apply on every keystroke: a field that commits on blur would lose its text on Escape or on a re-render.
function NumberField({ field, value, placeholder, change }: { field: Field; value?: number; placeholder: string; change: SamplingProps['change'] }) {
  const text = useSignal(String(value ?? ''));
  const isOutside = value !== undefined && (value < (field.min ?? -Infinity) || value > (field.max ?? Infinity));
  const range = field.max === undefined ? `at least ${field.min}` : `${field.min} to ${field.max}`;
  const shown = (text.value === '' ? undefined : Number(text.value)) === value ? text.value : String(value ?? '');
  return (
    <>
      <input type="number" name={field.name} min={field.min} max={field.max} step={field.step} placeholder={placeholder} value={shown} aria-invalid={isOutside}
             onInput={(event) => {
               text.value = event.currentTarget.value;
               change({ [field.name]: text.value === '' ? undefined : Number(text.value) });
             }} />
      {isOutside && <span class="wrong" role="alert">Must be {range}.</span>}
    </>
  );
}

// Beside the number, which has the exact value and the default.
function Slider({ field, value, fallback, change }: { field: Field; value?: number; fallback: string; change: SamplingProps['change'] }) {
  return (
    <input type="range" aria-label={`${field.label}, slider`} min={field.min} max={field.sliderMax ?? field.max} step={field.step}
           value={value ?? Number(fallback)} onInput={(event) => change({ [field.name]: Number(event.currentTarget.value) })} />
  );
}

export function SamplingFields({ values, change, modelName }: SamplingProps) {
  const modelProps = props.value?.models.find((entry) => entry.name === modelName) ?? model.value;
  const recommended = modelProps?.recommended_sampling ?? {};
  const thinking = thinkingOf(modelProps);
  return (
    <div class="fields">
      {kFields.filter((field) => !field.needsThinking || (thinking.kind !== 'none' && thinking.budget)).map((field) => {
        const value = values[field.name] as number | undefined;
        const fallback = fallbackOf(field, recommended);
        return (
          <div class="field" key={field.name}>
            <label>
              <span>{field.label} <small>{field.hint}</small></span>
              <NumberField field={field} value={value} placeholder={fallback} change={change} />
            </label>
            {field.hasSlider && <Slider field={field} value={value} fallback={fallback} change={change} />}
          </div>
        );
      })}
    </div>
  );
}

export const labelOf = (name: string) => kFields.find((field) => field.name === name)?.label;

// Presets: a system prompt and sampling under a name. They apply to the open conversation.
function Presets() {
  const name = useSignal('');
  const isNaming = useSignal(false);
  const current = presets.value.find((preset) => isApplied(preset, settings.value));
  const save = () => {
    if (name.value.trim()) savePreset(name.value.trim(), settings.value);
    isNaming.value = false;
    name.value = '';
  };
  return (
    <div class="presets">
      <label class="wide">
        <span>Preset <small>of system prompt and sampling</small></span>
        <select name="preset" value={current?.name ?? ''} onChange={(event) => applyPreset(event.currentTarget.value)}>
          <option value="" disabled>Own settings</option>
          {presets.value.map((preset) => <option key={preset.name} value={preset.name}>{preset.name}</option>)}
        </select>
      </label>
      {isNaming.value ? (
        <form class="line" onSubmit={(event) => { event.preventDefault(); save(); }}>
          <input aria-label="Name of the preset" placeholder="Name of the preset" value={name.value} ref={(field) => field?.focus()}
                 onInput={(event) => (name.value = event.currentTarget.value)} />
          <button type="submit" class="main" disabled={!name.value.trim()}>Save</button>
        </form>
      ) : (
        <div class="line">
          <button type="button" onClick={() => (isNaming.value = true)}>Save as preset</button>
          {current && !current.isBuiltIn && <button type="button" onClick={() => deletePreset(current.name)}>Delete preset</button>}
          <button type="button" onClick={() => applyPreset(kDefaultPreset)}>Reset to defaults</button>
        </div>
      )}
    </div>
  );
}

// What the model is told if the field is empty: some templates have a system prompt of their own.
function useTemplatePrompt(): string {
  const found = useSignal('');
  useEffect(() => {
    found.value = '';
    if (model.value) void templateSystemPrompt(model.value.name).then((text) => (found.value = text), () => undefined);
  }, [model.value?.name]);
  return found.value;
}

const kOrigins: Record<string, string> = {
  "the file's": 'from the model file', "zinc's own": 'zinc’s defaults, because no recommendation is known for this model',
};

export function SettingsPanel() {
  const isTyping = useSignal(false); // tools: do not report incomplete JSON while typing
  const templatePrompt = useTemplatePrompt();
  const set = settings.value;
  const origin = model.value?.recommended_sampling?.origin as string | undefined;
  const errorOf = (text: string) => {
    try {
      if (text.trim() && !Array.isArray(JSON.parse(text))) throw new Error('expected an array');
      return '';
    } catch (error) {
      return `Invalid: ${error instanceof Error ? error.message : String(error)}`;
    }
  };
  const changeTools = (text: string) =>
    changeSettings(errorOf(text) ? { invalidTools: text } : { tools: text, invalidTools: undefined });
  const toolError = isTyping.value ? '' : errorOf(set.invalidTools ?? '');
  return (
    <Dialog title={conversation.value ? 'Settings of this conversation' : 'Settings of new conversations'} class="is-side"
            onClose={() => (panel.value = null)}>
      <Presets />
      <label class="wide">
        <span>System prompt</span>
        <textarea name="system" rows={5} dir="auto" value={set.system ?? ''} placeholder={templatePrompt || 'Empty: the model gets no system prompt.'}
                  onInput={(event) => changeSettings({ system: event.currentTarget.value })} />
      </label>
      <p class="hint" hidden={!templatePrompt || Boolean(set.system)}>Empty: the model's own chat template adds the text above.</p>
      {model.value && !model.value.supports_system && <p class="hint">This model's chat template does not support a system prompt.</p>}
      <h3>Sampling</h3>
      <p class="hint">
        Empty fields use the value they show: {origin ? kOrigins[origin] ?? `from ${origin}` : 'the server’s defaults'}.
      </p>
      <SamplingFields values={set} change={changeSettings} />
      <h3>Tools</h3>
      <label class="wide">
        <span>Functions the model may call <small>a JSON array in the format of the API</small></span>
        <textarea name="tools" rows={4} class="mono" value={set.invalidTools ?? set.tools ?? ''} placeholder="[]" onInput={(event) => changeTools(event.currentTarget.value)}
                  onFocus={() => (isTyping.value = true)} onBlur={() => (isTyping.value = false)} />
      </label>
      {toolError && <p class="wrong" role="alert">{toolError}</p>}
      {model.value && !model.value.supports_tools && <p class="hint">This model's chat template has no tools: a generic tool prompt is used.</p>}
    </Dialog>
  );
}

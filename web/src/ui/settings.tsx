// Settings of a conversation. An empty field shows and uses the default.
import { useSignal } from '@preact/signals';
import { changeSettings, conversation, model, panel, props, settings } from '../state';
import type { Settings } from '../types';
import { Dialog } from './dialog';

interface Field {
  name: keyof Settings;
  label: string;
  hint: string;
  min?: number;
  max?: number;
  step: number;
  fallback: string;
}

const kFields: Field[] = [
  { name: 'temperature', label: 'Temperature', hint: '0 is greedy', min: 0, max: 2, step: 0.05, fallback: '1' },
  { name: 'top_p', label: 'Top p', hint: '1 is off', min: 0, max: 1, step: 0.01, fallback: '1' },
  { name: 'top_k', label: 'Top k', hint: '0 is off', min: 0, step: 1, fallback: '0' },
  { name: 'min_p', label: 'Min p', hint: '0 is off', min: 0, max: 1, step: 0.01, fallback: '0' },
  { name: 'repeat_penalty', label: 'Repeat penalty', hint: '1 is off', min: 0.01, max: 100, step: 0.01, fallback: '1' },
  { name: 'frequency_penalty', label: 'Frequency penalty', hint: '0 is off', min: -2, max: 2, step: 0.05, fallback: '0' },
  { name: 'presence_penalty', label: 'Presence penalty', hint: '0 is off', min: -2, max: 2, step: 0.05, fallback: '0' },
  { name: 'max_tokens', label: 'Max answer tokens', hint: 'tokens', min: 1, step: 1, fallback: 'context limit' },
  { name: 'thinking_budget', label: 'Thinking budget', hint: 'tokens', min: 0, step: 1, fallback: 'no limit' },
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
  const shown = (text.value === '' ? undefined : Number(text.value)) === value ? text.value : String(value ?? '');
  return (
    <input type="number" name={field.name} min={field.min} max={field.max} step={field.step} placeholder={placeholder} value={shown}
           onInput={(event) => {
             text.value = event.currentTarget.value;
             change({ [field.name]: text.value === '' ? undefined : Number(text.value) });
           }} />
  );
}

export function SamplingFields({ values, change, modelName }: SamplingProps) {
  const modelProps = props.value?.models.find((entry) => entry.name === modelName) ?? model.value;
  const recommended = modelProps?.recommended_sampling ?? {};
  return (
    <div class="fields">
      {kFields.map((field) => (
        <label key={field.name}>
          <span>{field.label} <small>{field.hint}</small></span>
          <NumberField field={field} value={values[field.name] as number | undefined} placeholder={fallbackOf(field, recommended)} change={change} />
        </label>
      ))}
    </div>
  );
}

const kOrigins: Record<string, string> = {
  "the file's": 'from the model file', "zinc's own": 'zinc’s defaults, because no recommendation is known for this model',
};

export function SettingsPanel() {
  const isTyping = useSignal(false); // tools: do not report incomplete JSON while typing
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
      <label class="wide">
        <span>System prompt</span>
        <textarea name="system" rows={5} dir="auto" value={set.system ?? ''} placeholder="Empty: only your messages are sent."
                  onInput={(event) => changeSettings({ system: event.currentTarget.value })} />
      </label>
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
      {model.value && !model.value.supports_tools && <p class="hint">This model's chat template does not support tools.</p>}
    </Dialog>
  );
}

// The composer: text, dropped or pasted files, and the context gauge.
import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { isAnswering, send, stop } from '../answer';
import { addAttachments, draft, sendDraft, setDraft } from '../draft';
import { isContextNearlyFull, tokensInContext } from '../context';
import { attachFiles } from '../files';
import { chooseModel, loadingModel } from '../models';
import {
  changeSettings, conversation, figures, library, model, openId, panel, path, refreshLibrary, isServerUnreachable, settings, showsFigures, showToast,
} from '../state';
import { chosenThinking, settingsOfChoice, thinkingChoices, thinkingOf } from '../thinking';
import { bytes, count, plural } from './format';
import { Icon, IconButton } from './icon';
import { OverflowChoice } from './overflow';

const kLongPaste = 2000; // characters; a longer paste becomes an attachment

function useDrop() {
  const isOver = useSignal(false);
  useLayoutEffect(() => {
    const over = (event: DragEvent) => {
      if (!event.dataTransfer?.types.includes('Files')) return;
      event.preventDefault();
      isOver.value = true;
    };
    const leave = (event: DragEvent) => {
      if (!event.relatedTarget) isOver.value = false;
    };
    const drop = (event: DragEvent) => {
      if (!event.dataTransfer?.files.length) return;
      event.preventDefault();
      isOver.value = false;
      void attachFiles([...event.dataTransfer.files]);
    };
    addEventListener('dragover', over);
    addEventListener('dragleave', leave);
    addEventListener('drop', drop);
    return () => {
      removeEventListener('dragover', over);
      removeEventListener('dragleave', leave);
      removeEventListener('drop', drop);
    };
  }, []);
  return isOver;
}

function Bar({ label, parts, total, text }: { label: string; parts: { name: string; value: number }[]; total: number; text: string }) {
  return (
    <div class="gauge" title={text}>
      <span>{label}</span>
      <div class="bar" role="img" aria-label={text}>
        {parts.map((part) => (
          <span key={part.name} class={part.name} style={{ width: `${Math.min(100, (part.value / Math.max(total, 1)) * 100)}%` }} />
        ))}
      </div>
      <span class="faint">{text}</span>
    </div>
  );
}

// The share of the context that the conversation fills; for engineers also memory and the prefix cache.
export function Gauges() {
  const context = model.value?.context ?? 0;
  const used = tokensInContext.value;
  const now = model.value && showsFigures.value ? figures.value.get(model.value.name) : undefined;
  const hits = now && now.prompt_tokens > 0 ? now.prompt_tokens_cached / now.prompt_tokens : 0;
  const text = !context ? 'unknown' : used === null ? `unknown, of ${count(context)} tokens` : `${count(used)} of ${count(context)} tokens`;
  return (
    <div class="gauges">
      <Bar label="Context" total={context} parts={[{ name: isContextNearlyFull.value ? 'full' : 'done', value: used ?? 0 }]} text={text} />
      {now && (
        <Bar label="Memory" total={now.weight_bytes + now.cache_bytes}
             parts={[
               { name: 'done', value: now.weight_bytes },
               { name: 'busy', value: now.cache_active_bytes },
               { name: 'cached', value: now.cache_kept_bytes },
             ]}
             text={`${bytes(now.weight_bytes)} weights, ${bytes(now.cache_active_bytes + now.cache_kept_bytes)} of ${bytes(now.cache_bytes)} cache`} />
      )}
      {now && <span class="faint hits" title="Share of prompt tokens found in the prefix cache since the server started">{Math.round(hits * 100)}% prefix cache hits</span>}
      <span class="space" />
      <IconButton icon="chart" label="Memory and cache figures" class="small" pressed={showsFigures.value} onClick={() => (showsFigures.value = !showsFigures.value)} />
    </div>
  );
}

function ContextWarning() {
  const isOver = path.value.at(-1)?.notice?.kind === 'context'; // its notice has the same choices
  if (!isContextNearlyFull.value || isOver || isAnswering()) return null;
  const percent = Math.round((tokensInContext.value! / model.value!.context) * 100);
  return (
    <div class="gone" role="status">
      <span>{percent > 100 ? 'This conversation is longer than the context of the model, which cannot answer it.' : `This conversation fills ${percent}% of the context. When it is full, the model cannot answer.`}</span>
      <OverflowChoice isOver={percent > 100} />
    </div>
  );
}

// For an installed model.
function LoadButton({ name }: { name: string }) {
  const error = useSignal('');
  useEffect(() => void refreshLibrary().catch(() => undefined), [name]);
  const entry = library.value?.data.find((other) => other.id === name && other.installed);
  if (!entry) return null;
  const isLoading = loadingModel.value === name;
  return (
    <>
      <button type="button" disabled={isLoading} onClick={() => void chooseModel(name).then((text) => (error.value = text))}>{isLoading ? 'Loading…' : `Load ${name}`}</button>
      {error.value && <span role="alert"> {error.value}</span>}
    </>
  );
}

// A switch for models that think or do not, a list for those with several efforts; nothing for others.
function ThinkingChoice() {
  const thinking = thinkingOf(model.value);
  const choices = thinkingChoices(thinking);
  const chosen = chosenThinking(thinking, settings.value);
  const choose = (choice: string) => changeSettings(settingsOfChoice(thinking, choice));
  if (choices.length === 0) return null;
  if (thinking.kind === 'effort') {
    return (
      <select class="pill" aria-label="Thinking effort" value={chosen} onChange={(event) => choose(event.currentTarget.value)}>
        {choices.map((choice) => <option key={choice} value={choice}>Thinking: {choice}</option>)}
      </select>
    );
  }
  const isOn = chosen === 'on';
  return <button type="button" class="pill" aria-pressed={isOn} onClick={() => choose(isOn ? 'off' : 'on')}>Thinking {isOn ? 'on' : 'off'}</button>;
}

export function Composer() {
  const area = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const isOver = useDrop();
  const { text, attachments } = draft.value;
  const busy = isAnswering();
  useLayoutEffect(() => {
    const element = area.current!;
    element.style.height = 'auto';
    element.style.height = `${Math.min(element.scrollHeight + 2, innerHeight * 0.4)}px`;
  }, [text]);
  // Immediately: later it would steal the focus from another field.
  useLayoutEffect(() => {
    if (matchMedia('(pointer: fine)').matches) area.current!.focus();
  }, [openId.value]);
  const submit = () => {
    if (!text.trim() && attachments.length === 0) return;
    if (busy) return showToast('The answer is still being written; Escape stops it.');
    sendDraft(send);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    // Phones have no Shift+Enter; there only the button sends.
    const isPhone = matchMedia('(pointer: coarse) and (hover: none)').matches;
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing && !isPhone) {
      event.preventDefault();
      submit();
    } else if (event.key === 'ArrowUp' && !text) {
      const last = [...document.querySelectorAll<HTMLElement>('.by-user .edit')].at(-1);
      if (last) {
        event.preventDefault();
        last.click();
      }
    }
  };
  const onPaste = (event: ClipboardEvent) => {
    const pasted = event.clipboardData?.getData('text/plain') ?? '';
    // Spreadsheets and word processors also put an image of the text on the clipboard.
    const files = [...(event.clipboardData?.files ?? [])].filter((file) => !pasted || !file.type.startsWith('image/'));
    if (files.length > 0) {
      event.preventDefault();
      void attachFiles(files);
    } else if (pasted.length > kLongPaste) {
      event.preventDefault();
      const n = attachments.filter(({ name }) => /^pasted-\d+\.txt$/.test(name)).length + 1;
      addAttachments([{ name: `pasted-${n}.txt`, text: pasted }]);
    }
  };
  const wanted = conversation.value?.settings.model;
  const isMissing = wanted && model.value && model.value.name !== wanted;
  return (
    <div class="composer">
      {isMissing && (
        <p class="gone">
          This conversation uses {wanted}, which is not loaded; {model.value!.name} answers instead.{' '}
          <LoadButton name={wanted} />
          <button type="button" onClick={() => (panel.value = 'models')}>Models</button>
        </p>
      )}
      {isServerUnreachable.value && <p class="gone" role="status">The server cannot be reached; retrying…</p>}
      <ContextWarning />
      <form class={isOver.value ? 'box is-over' : 'box'} onSubmit={(event) => { event.preventDefault(); submit(); }}>
        {attachments.length > 0 && (
          <ul class="chips" aria-label="Attachments">
            {attachments.map((file, i) => (
              <li key={i}>
                <Icon name="file" /> {file.name} <span class="faint">{plural(file.text.length, 'character')}</span>
                <IconButton icon="close" label={`Remove ${file.name}`}
                            onClick={() => setDraft({ attachments: attachments.filter((_, other) => other !== i) })} />
              </li>
            ))}
          </ul>
        )}
        <textarea id="prompt" ref={area} rows={1} dir="auto" aria-label="Message" placeholder={isOver.value ? 'Drop text or PDF files here' : 'Write a message'}
                  value={text} onInput={(event) => setDraft({ text: event.currentTarget.value })} onKeyDown={onKeyDown} onPaste={onPaste} />
        <div class="tools">
          <IconButton icon="clip" label="Attach text or PDF files" onClick={() => picker.current?.click()} />
          <IconButton icon="gear" label="Settings of this conversation" onClick={() => (panel.value = 'settings')} />
          <ThinkingChoice />
          <button type="button" class="pill" aria-pressed={Boolean(settings.value.probabilities)} title="Tint every word of the answers by how sure the model was"
                  onClick={() => changeSettings({ probabilities: settings.value.probabilities ? undefined : true })}>
            Probabilities
          </button>
          <span class="space" />
          {busy ? (
            <button type="button" class="send is-stop" aria-label="Stop" title="Stop (Escape)" onClick={stop}><Icon name="stop" /></button>
          ) : (
            <button type="submit" class="send" aria-label="Send" title="Send (Enter)" disabled={!text.trim() && attachments.length === 0}>
              <Icon name="send" />
            </button>
          )}
        </div>
        <input ref={picker} id="attach" type="file" multiple hidden
               onChange={(event) => { void attachFiles([...(event.currentTarget.files ?? [])]); event.currentTarget.value = ''; }} />
      </form>
      <Gauges />
    </div>
  );
}

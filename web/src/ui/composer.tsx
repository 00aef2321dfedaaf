// The composer: text, dropped or pasted files, and the context gauge.
import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { isAnswering, live, send, stop } from '../answer';
import { addAttachments, draft, draftKey, sendDraft, setDraft } from '../draft';
import {
  changeSettings, conversation, figures, library, model, openId, panel, path, refreshLibrary, showToast, isServerUnreachable, settings,
} from '../state';
import type { Attachment } from '../types';
import { bytes, count, plural } from './format';
import { Icon, IconButton } from './icon';
import { activate } from './models';

const kLongPaste = 2000; // characters; a longer paste becomes an attachment
const kMaxFileBytes = 8 << 20;

async function readFiles(files: File[]): Promise<void> {
  const key = draftKey(); // reading the files is asynchronous
  const out: Attachment[] = [];
  for (const file of files) {
    if (file.size > kMaxFileBytes) {
      showToast(`${file.name} is too large (${bytes(file.size)}); the limit is ${bytes(kMaxFileBytes)}.`);
      continue;
    }
    try {
      out.push({ name: file.name, text: new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer()) });
    } catch {
      showToast(`${file.name} is not a text file; only text files can be attached.`);
    }
  }
  if (out.length > 0) addAttachments(out, key);
}

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
      void readFiles([...event.dataTransfer.files]);
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

// Of the last answer; while streaming, prompt and output tokens so far.
function tokensInContext(): number {
  const last = path.value.findLast((message) => message.usage || live.value.has(message.id));
  const state = last && live.value.get(last.id);
  if (!state?.progress.value) return last?.usage?.total_tokens ?? 0;
  return state.progress.value.processed + state.nTokens.value;
}

// Context and memory use, and the prefix cache hit rate.
export function Gauges() {
  const context = model.value?.context ?? 0;
  const used = tokensInContext();
  const now = model.value ? figures.value.get(model.value.name) : undefined;
  const hits = now && now.prompt_tokens > 0 ? now.prompt_tokens_cached / now.prompt_tokens : 0;
  return (
    <div class="gauges">
      <Bar label="Context" total={context} parts={[{ name: used > context * 0.9 ? 'full' : 'done', value: used }]}
           text={context ? `${count(used)} of ${count(context)} tokens` : 'unknown'} />
      {now && (
        <Bar label="Memory" total={now.weight_bytes + now.cache_bytes}
             parts={[
               { name: 'done', value: now.weight_bytes },
               { name: 'busy', value: now.cache_active_bytes },
               { name: 'cached', value: now.cache_kept_bytes },
             ]}
             text={`${bytes(now.weight_bytes)} weights, ${bytes(now.cache_active_bytes + now.cache_kept_bytes)} of ${bytes(now.cache_bytes)} cache`} />
      )}
      {now && now.prompt_tokens > 0 && <span class="faint hits" title="Share of prompt tokens found in the prefix cache since the server started">{Math.round(hits * 100)}% prefix cache hits</span>}
    </div>
  );
}

// For an installed model.
function LoadButton({ name }: { name: string }) {
  const isLoading = useSignal(false);
  useEffect(() => void refreshLibrary().catch(() => undefined), [name]);
  const entry = library.value?.data.find((other) => other.id === name && other.installed);
  if (!entry) return null;
  const load = async () => {
    isLoading.value = true;
    await activate(entry, false);
    isLoading.value = false;
  };
  return <button type="button" disabled={isLoading.value} onClick={() => void load()}>{isLoading.value ? 'Loading…' : `Load ${name}`}</button>;
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
    if (busy || (!text.trim() && attachments.length === 0)) return;
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
      void readFiles(files);
    } else if (pasted.length > kLongPaste) {
      event.preventDefault();
      addAttachments([{ name: `pasted-${attachments.length + 1}.txt`, text: pasted }]);
    }
  };
  const think = settings.value.thinking;
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
        <textarea id="prompt" ref={area} rows={1} dir="auto" aria-label="Message" placeholder={isOver.value ? 'Drop text files here' : 'Write a message'}
                  value={text} onInput={(event) => setDraft({ text: event.currentTarget.value })} onKeyDown={onKeyDown} onPaste={onPaste} />
        <div class="tools">
          <IconButton icon="clip" label="Attach text files" onClick={() => picker.current?.click()} />
          <IconButton icon="gear" label="Settings of this conversation" onClick={() => (panel.value = 'settings')} />
          {model.value?.supports_thinking_toggle && (
            <button type="button" class="pill" aria-pressed={think !== false}
                    onClick={() => changeSettings({ thinking: think === false ? undefined : false })}>
              {think === false ? 'Thinking off' : 'Thinking on'}
            </button>
          )}
          <button type="button" class="pill" aria-pressed={Boolean(settings.value.probabilities)}
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
               onChange={(event) => { void readFiles([...(event.currentTarget.files ?? [])]); event.currentTarget.value = ''; }} />
      </form>
      <Gauges />
    </div>
  );
}

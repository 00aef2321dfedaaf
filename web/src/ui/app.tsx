// The whole page: the list at the side, the conversation, what one writes in, and the windows over it.
import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { giveKey, keyIsWanted, keyWasWrong } from '../api';
import { isAnswering, live, stop } from '../answer';
import { storeError } from '../keep';
import {
  changeSettings, conversation, model, openConversation, openId, panel, props, refreshFigures, serverIsGone, sidebarIsOpen,
  sorted, toasts, type Toast,
} from '../state';
import { ComparePanel } from './compare';
import { Composer } from './composer';
import { Dialog } from './dialog';
import { IconButton } from './icon';
import { LinkCare } from './links';
import { ModelsPanel } from './models';
import { SettingsPanel } from './settings';
import { Sidebar } from './sidebar';
import { Thread } from './thread';

function Head() {
  const models = props.value?.models ?? [];
  return (
    <header class="head">
      <IconButton icon="menu" label="Conversations" class="only-phone" expanded={sidebarIsOpen.value}
                  onClick={() => (sidebarIsOpen.value = !sidebarIsOpen.value)} />
      <h1 class="title">{conversation.value?.title ?? 'New conversation'}</h1>
      <select class="model-picker" aria-label="Model" value={model.value?.name ?? ''}
              onChange={(event) => {
                if (event.currentTarget.value) changeSettings({ model: event.currentTarget.value });
                else {
                  event.currentTarget.value = model.value?.name ?? '';
                  panel.value = 'models';
                }
              }}>
        {models.map((entry) => <option key={entry.name} value={entry.name}>{entry.name}</option>)}
        <option value="">{models.length ? 'More models…' : 'No model'}</option>
      </select>
      <IconButton icon="help" label="Keys" onClick={() => (panel.value = 'help')} />
    </header>
  );
}

const kKeys: [string, string][] = [
  ['Enter', 'Send; Shift+Enter begins a new line'],
  ['Escape', 'Stop the answer, close a window'],
  ['↑ in an empty field', 'Edit the last message'],
  ['Ctrl+K', 'Search conversations'],
  ['Ctrl+Shift+O', 'New conversation'],
  ['Ctrl+,', 'Settings of this conversation'],
  ['Ctrl+Shift+M', 'Models'],
  ['Ctrl+Shift+C', 'Compare'],
  ['Alt+↑, Alt+↓', 'Conversation before, after'],
  ['Ctrl+/', 'This list'],
];

function HelpPanel() {
  return (
    <Dialog title="Keys" onClose={() => (panel.value = null)}>
      <dl class="keys">{kKeys.map(([key, text]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{text}</dd></div>)}</dl>
      <p class="hint">{props.value?.build.version ?? 'zinc'} · <a href="/licenses.txt" target="_blank" rel="noopener">Licences</a> · <a href="/openapi.json" target="_blank" rel="noopener">API</a></p>
    </Dialog>
  );
}

function KeyPanel() {
  const text = useSignal('');
  return (
    <Dialog title="API key" isFixed onClose={() => undefined}>
      <p>This server wants a key. It is kept in this browser and sent to this server only.</p>
      {keyWasWrong.value && <p class="wrong" role="alert">The key was not taken.</p>}
      <form class="line" onSubmit={(event) => { event.preventDefault(); if (text.value.trim()) giveKey(text.value.trim()); }}>
        <input type="password" aria-label="API key" autocomplete="off" value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
        <button type="submit" class="main">Use it</button>
      </form>
    </Dialog>
  );
}

function ToastView({ toast }: { toast: Toast }) {
  const remove = () => (toasts.value = toasts.value.filter((other) => other !== toast));
  useEffect(() => {
    const timer = setTimeout(remove, toast.action ? 10_000 : 4000);
    return () => clearTimeout(timer);
  }, [toast]);
  return (
    <div class="toast">
      <span>{toast.text}</span>
      {toast.action && <button type="button" onClick={() => { toast.run!(); remove(); }}>{toast.action}</button>}
    </div>
  );
}

// Over everything, open windows too: what was shown last is on top.
function Toasts() {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (toasts.value.length === 0) return;
    place.current!.showPopover();
    return () => place.current?.hidePopover();
  }, [toasts.value]);
  return (
    <div ref={place} popover="manual" class="toast-place" role="status">
      {toasts.value.map((toast) => <ToastView key={toast} toast={toast} />)}
    </div>
  );
}

function step(by: number): void {
  const list = sorted.value;
  const at = list.findIndex((entry) => entry.id === openId.value);
  const next = list[Math.max(0, Math.min(list.length - 1, at + by))];
  if (next) void openConversation(next.id);
}

// Whether a key closes something that is open rather than stop the answer.
function isMeantFor(event: KeyboardEvent): boolean {
  const target = event.target instanceof Element ? event.target : null;
  return Boolean(document.querySelector('dialog[open]') || target?.closest('.editor, .row, .menu, .search'));
}

// Before the page is seen: a key that is pressed at once counts.
function useKeys() {
  useLayoutEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.defaultPrevented || keyIsWanted.value) return;
      const control = event.ctrlKey || event.metaKey;
      const key = event.key.toLowerCase();
      const table: [boolean, () => void][] = [
        [control && key === 'k', () => { sidebarIsOpen.value = true; setTimeout(() => document.getElementById('search')?.focus()); }],
        [control && event.shiftKey && key === 'o', () => { void openConversation(null); document.getElementById('prompt')?.focus(); }],
        [control && key === ',', () => (panel.value = 'settings')],
        [control && event.shiftKey && key === 'm', () => (panel.value = 'models')],
        [control && event.shiftKey && key === 'c', () => (panel.value = 'compare')],
        [control && key === '/', () => (panel.value = 'help')],
        [event.altKey && key === 'arrowup', () => step(-1)],
        [event.altKey && key === 'arrowdown', () => step(1)],
        [key === 'escape' && !isMeantFor(event) && isAnswering(), stop],
        [key === 'escape' && sidebarIsOpen.value, () => (sidebarIsOpen.value = false)],
      ];
      const found = table.find(([matches]) => matches);
      if (!found) return;
      event.preventDefault();
      found[1]();
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, []);
}

const kBusyMs = 2000;
const kCalmMs = 30_000;

// Looks at the server now and then, more often while something happens, never while nobody looks.
function usePulse() {
  const isBusy = live.value.size > 0 || serverIsGone.value;
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout>;
    let isOver = false;
    const beat = async () => {
      if (!document.hidden) await refreshFigures();
      if (isOver) return;
      clearTimeout(timer);
      timer = setTimeout(beat, isBusy ? kBusyMs : kCalmMs);
    };
    timer = setTimeout(beat, isBusy ? kBusyMs : 0);
    const shown = () => {
      if (document.hidden) return;
      clearTimeout(timer);
      void beat();
    };
    document.addEventListener('visibilitychange', shown);
    return () => {
      isOver = true;
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', shown);
    };
  }, [isBusy]);
}

export function App() {
  useKeys();
  usePulse();
  return (
    <>
      <a class="skip" href="#prompt" onClick={(event) => { event.preventDefault(); document.getElementById('prompt')?.focus(); }}>To the message field</a>
      <Sidebar />
      {sidebarIsOpen.value && <div class="veil" onClick={() => (sidebarIsOpen.value = false)} />}
      <div class="column">
        <Head />
        {storeError.value && <p class="alarm" role="alert">Conversations cannot be kept in this browser now: {storeError.value}</p>}
        <Thread />
        <Composer />
      </div>
      {panel.value === 'settings' && <SettingsPanel />}
      {panel.value === 'models' && <ModelsPanel />}
      {panel.value === 'compare' && <ComparePanel />}
      {panel.value === 'help' && <HelpPanel />}
      {keyIsWanted.value && <KeyPanel />}
      <LinkCare />
      <Toasts />
    </>
  );
}

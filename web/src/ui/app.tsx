// The page layout: sidebar, conversation, composer and dialogs.
import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { setApiKey, isKeyRequired, wasKeyRejected } from '../api';
import { isAnswering, live, stop } from '../answer';
import { storeError } from '../persist';
import { chooseModel, loadingName, modelChoices } from '../models';
import {
  conversation, model, openConversation, openId, panel, props, refreshFigures, refreshLibrary, isServerUnreachable, showToast,
  sidebarIsFolded, sidebarIsOpen, sorted, toasts, type Toast,
} from '../state';
import { ComparePanel } from './compare';
import { Composer } from './composer';
import { Dialog } from './dialog';
import { IconButton } from './icon';
import { LinkGuard } from './links';
import { ModelsPanel } from './models';
import { SettingsPanel } from './settings';
import { Sidebar } from './sidebar';
import { Thread } from './thread';

const toggleSidebar = () => (sidebarIsFolded.value = !sidebarIsFolded.value);

// Loaded models, then installed ones, which are loaded when chosen.
function ModelPicker() {
  const choices = modelChoices();
  const [loaded, others] = [choices.filter(({ isLoaded }) => isLoaded), choices.filter(({ isLoaded }) => !isLoaded)];
  const choose = async (field: HTMLSelectElement) => {
    const name = field.value;
    if (!name) panel.value = 'models';
    const error = name ? await chooseModel(name) : '';
    if (error) showToast(error);
    field.value = model.value?.name ?? '';
  };
  const loading = loadingName();
  if (loading) return <span class="model-picker" role="status">Loading {loading}…</span>;
  return (
    <select class="model-picker" aria-label="Model" title={model.value?.name} value={model.value?.name ?? ''} onFocus={() => void refreshLibrary().catch(() => undefined)}
            onChange={(event) => void choose(event.currentTarget)}>
      {loaded.length === 0 && <option value="" hidden>Choose a model</option>}
      {loaded.map(({ name }) => <option key={name} value={name}>{name}</option>)}
      {others.length > 0 && <optgroup label="Installed: loads when chosen">{others.map(({ name }) => <option key={name} value={name}>{name}</option>)}</optgroup>}
      <option value="">More models…</option>
    </select>
  );
}

function Header() {
  return (
    <header class="head">
      <IconButton icon="menu" label="Conversations" class="only-phone" expanded={sidebarIsOpen.value}
                  onClick={() => (sidebarIsOpen.value = !sidebarIsOpen.value)} />
      {sidebarIsFolded.value && <IconButton icon="fold" label="Show the list (Ctrl+B)" class="only-desktop" onClick={toggleSidebar} />}
      <h1 class="title" title={conversation.value?.title}>{conversation.value?.title ?? 'New conversation'}</h1>
      <ModelPicker />
      <IconButton icon="help" label="Keyboard shortcuts" onClick={() => (panel.value = 'help')} />
    </header>
  );
}

const kShortcuts: [string, string][] = [
  ['Enter', 'Send; Shift+Enter inserts a new line'],
  ['Escape', 'Stop the answer, close a dialog'],
  ['↑ in an empty field', 'Edit the last message'],
  ['Ctrl+K', 'Search conversations'],
  ['Ctrl+Shift+O', 'New conversation'],
  ['Ctrl+,', 'Settings of this conversation'],
  ['Ctrl+B', 'Hide or show the list'],
  ['Alt+M', 'Models'],
  ['Alt+C', 'Compare'],
  ['Alt+↑, Alt+↓', 'Previous, next conversation'],
  ['Ctrl+/', 'This list'],
];

function HelpPanel() {
  return (
    <Dialog title="Keyboard shortcuts" onClose={() => (panel.value = null)}>
      <dl class="keys">{kShortcuts.map(([key, text]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{text}</dd></div>)}</dl>
      <p class="hint">{props.value?.build.version ?? 'zinc'} · <a href="/licenses.txt" target="_blank" rel="noopener">Licenses</a> · <a href="/openapi.json" target="_blank" rel="noopener">API</a></p>
    </Dialog>
  );
}

function KeyPanel() {
  const text = useSignal('');
  return (
    <Dialog title="API key" isFixed onClose={() => undefined}>
      <p>This server requires an API key. It is stored in this browser and sent only to this server.</p>
      {wasKeyRejected.value && <p class="wrong" role="alert">Wrong key.</p>}
      <form class="line" onSubmit={(event) => { event.preventDefault(); if (text.value.trim()) setApiKey(text.value.trim()); }}>
        <input type="password" aria-label="API key" autocomplete="off" value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
        <button type="submit" class="main">Use key</button>
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

// Above everything, including open dialogs; the latest is on top.
function Toasts() {
  const element = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (toasts.value.length === 0) return;
    element.current!.showPopover();
    return () => element.current?.hidePopover();
  }, [toasts.value]);
  return (
    <div ref={element} popover="manual" class="toasts" role="status">
      {toasts.value.map((toast) => <ToastView key={toast} toast={toast} />)}
    </div>
  );
}

function openNeighbor(by: number): void {
  const list = sorted.value;
  const at = list.findIndex((entry) => entry.id === openId.value);
  const next = list[Math.max(0, Math.min(list.length - 1, at + by))];
  if (next) void openConversation(next.id);
}

// Whether Escape closes something open instead of stopping the answer.
function isHandledElsewhere(event: KeyboardEvent): boolean {
  const target = event.target instanceof Element ? event.target : null;
  return Boolean(document.querySelector('dialog[open]') || target?.closest('.editor, .row, .menu, .search'));
}

// Registered before the first paint, so that early key presses count.
function useShortcuts() {
  useLayoutEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.defaultPrevented || isKeyRequired.value) return;
      const control = event.ctrlKey || event.metaKey;
      const key = event.key.toLowerCase();
      const isAlt = event.altKey && !control && !event.shiftKey; // free in every browser, unlike Ctrl+Shift
      const shortcuts: [boolean, () => void][] = [
        [control && key === 'k', () => { sidebarIsOpen.value = true; sidebarIsFolded.value = false; setTimeout(() => document.getElementById('search')?.focus()); }],
        [control && event.shiftKey && key === 'o', () => { void openConversation(null); document.getElementById('prompt')?.focus(); }],
        [control && key === ',', () => (panel.value = 'settings')],
        [control && key === 'b', toggleSidebar],
        [isAlt && event.code === 'KeyM', () => (panel.value = 'models')],
        [isAlt && event.code === 'KeyC', () => (panel.value = 'compare')],
        [control && key === '/', () => (panel.value = 'help')],
        [event.altKey && key === 'arrowup', () => openNeighbor(-1)],
        [event.altKey && key === 'arrowdown', () => openNeighbor(1)],
        [key === 'escape' && !isHandledElsewhere(event) && isAnswering(), stop],
        [key === 'escape' && sidebarIsOpen.value, () => (sidebarIsOpen.value = false)],
      ];
      const found = shortcuts.find(([matches]) => matches);
      if (!found) return;
      event.preventDefault();
      found[1]();
    };
    addEventListener('keydown', onKeyDown);
    return () => removeEventListener('keydown', onKeyDown);
  }, []);
}

const kBusyPollMs = 2000;
const kIdlePollMs = 30_000;

// Polls the server: more often while it is busy or has no model, never while the page is hidden.
function usePolling() {
  const isBusy = live.value.size > 0 || isServerUnreachable.value || props.value?.models.length === 0;
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout>;
    let isStopped = false;
    const poll = async () => {
      if (!document.hidden) await refreshFigures();
      if (isStopped) return;
      clearTimeout(timer);
      timer = setTimeout(poll, isBusy ? kBusyPollMs : kIdlePollMs);
    };
    timer = setTimeout(poll, isBusy ? kBusyPollMs : 0);
    const onVisible = () => {
      if (document.hidden) return;
      clearTimeout(timer);
      void poll();
    };
    document.addEventListener('visibilitychange', onVisible);
    return () => {
      isStopped = true;
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', onVisible);
    };
  }, [isBusy]);
}

export function App() {
  useShortcuts();
  usePolling();
  return (
    <>
      <a class="skip" href="#prompt" onClick={(event) => { event.preventDefault(); document.getElementById('prompt')?.focus(); }}>Skip to the message field</a>
      <Sidebar />
      {sidebarIsOpen.value && <div class="backdrop" onClick={() => (sidebarIsOpen.value = false)} />}
      <div class={sidebarIsFolded.value ? 'column is-wide' : 'column'}>
        <Header />
        {storeError.value && <p class="alarm" role="alert">Conversations cannot be saved in this browser: {storeError.value}</p>}
        <Thread />
        <Composer />
      </div>
      {panel.value === 'settings' && <SettingsPanel />}
      {panel.value === 'models' && <ModelsPanel />}
      {panel.value === 'compare' && <ComparePanel />}
      {panel.value === 'help' && <HelpPanel />}
      {isKeyRequired.value && <KeyPanel />}
      <LinkGuard />
      <Toasts />
    </>
  );
}

// The conversation list: search, rename, delete, export and import.
import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { messagesOf } from '../db';
import { storeFailed } from '../persist';
import { deleteConversation } from '../session';
import {
  changeConversation, conversations, openConversation, openId, panel, sidebarIsFolded, sidebarIsOpen, sorted, theme,
} from '../state';
import { exportJson, exportMarkdown, importFile } from '../transfer';
import type { Conversation, Message } from '../types';
import { dateGroup } from './format';
import { Icon, IconButton } from './icon';
import { Menu } from './menu';

const textsOf = ({ content, reasoning = '', attachments = [], toolCalls = [] }: Message) => [
  content, reasoning, ...attachments.flatMap((file) => [file.name, file.text]), ...toolCalls.map((call) => call.arguments),
];

// Searches conversation by conversation, newest first; results appear while the search continues.
async function search(query: string, signal: AbortSignal, onFound: (id: string) => void): Promise<void> {
  for (const { id } of sorted.peek()) {
    const list = await messagesOf(id);
    if (signal.aborted) return;
    if (list.some((message) => textsOf(message).some((text) => text.toLowerCase().includes(query)))) onFound(id);
  }
}

function useSearch() {
  const text = useSignal('');
  const found = useSignal<Set<string>>(new Set()); // conversations with matching content
  useEffect(() => {
    const query = text.value.trim().toLowerCase();
    found.value = new Set();
    if (!query) return;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      search(query, stop.signal, (id) => (found.value = new Set(found.value).add(id))).catch(() => undefined);
    }, 120);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text.value]);
  const query = text.value.trim().toLowerCase();
  const matches = (entry: Conversation) =>
    !query || entry.title.toLowerCase().includes(query) || found.value.has(entry.id);
  return { text, matches };
}

// Uncontrolled input: the row may re-render while the user types.
function TitleField({ title, onSave, onCancel }: { title: string; onSave: (title: string) => void; onCancel: () => void }) {
  const field = useRef<HTMLInputElement>(null);
  const isClosed = useRef(false);
  useLayoutEffect(() => {
    field.current!.value = title;
    field.current!.select();
  }, []);
  const close = (run: () => void) => {
    if (isClosed.current) return; // removing the field fires blur too
    isClosed.current = true;
    run();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    if (event.key === 'Enter') close(() => onSave(field.current!.value));
    if (event.key !== 'Escape') return;
    event.preventDefault();
    close(onCancel);
  };
  return <input aria-label="Title" ref={field} onBlur={() => close(() => onSave(field.current!.value))} onKeyDown={onKeyDown} />;
}

function Row({ entry }: { entry: Conversation }) {
  const isRenaming = useSignal(false);
  const rename = (title: string) => {
    if (title.trim()) changeConversation(entry.id, { title: title.trim() });
    isRenaming.value = false;
  };
  if (isRenaming.value) {
    return (
      <li class="row">
        <TitleField title={entry.title} onSave={rename} onCancel={() => (isRenaming.value = false)} />
      </li>
    );
  }
  return (
    <li class="row">
      <button type="button" class="title" title={entry.title} aria-current={entry.id === openId.value ? 'page' : undefined}
              onClick={() => void openConversation(entry.id)} onDblClick={() => (isRenaming.value = true)}>
        {entry.title}
      </button>
      <Menu icon="more" label={`Actions for ${entry.title}`} class="row-menu">
        <button type="button" onClick={() => (isRenaming.value = true)}>Rename</button>
        <button type="button" onClick={() => void exportMarkdown(entry)}>Export as Markdown</button>
        <button type="button" onClick={() => void exportJson([entry])}>Export as JSON</button>
        <button type="button" class="danger" onClick={() => void deleteConversation(entry.id).catch(storeFailed)}>Delete</button>
      </Menu>
    </li>
  );
}

export function Sidebar() {
  const { text, matches } = useSearch();
  const picker = useRef<HTMLInputElement>(null);
  const groups: [string, Conversation[]][] = [];
  for (const entry of sorted.value.filter(matches)) {
    const name = dateGroup(entry.updated);
    if (groups.at(-1)?.[0] !== name) groups.push([name, []]);
    groups.at(-1)![1].push(entry);
  }
  return (
    <nav id="sidebar" aria-label="Conversations" class={`${sidebarIsOpen.value ? 'is-open' : ''} ${sidebarIsFolded.value ? 'is-folded' : ''}`}>
      <div class="brand">
        <img src="/icon.svg" alt="" width="22" height="22" />
        <span>zinc</span>
        <IconButton icon="fold" label="Hide the list (Ctrl+B)" class="only-desktop" onClick={() => (sidebarIsFolded.value = true)} />
        <IconButton icon="close" label="Close the list" class="only-phone" onClick={() => (sidebarIsOpen.value = false)} />
      </div>
      <button type="button" class="new" onClick={() => { void openConversation(null); document.getElementById('prompt')?.focus(); }}>
        <Icon name="plus" /> New conversation
      </button>
      <label class="search">
        <Icon name="search" />
        <input id="search" type="search" placeholder="Search" aria-label="Search conversations" value={text.value}
               onInput={(event) => (text.value = event.currentTarget.value)} />
      </label>
      <div class="list">
        {groups.map(([name, list]) => (
          <section key={name} aria-label={name}>
            <h2>{name}</h2>
            <ul>{list.map((entry) => <Row key={entry.id} entry={entry} />)}</ul>
          </section>
        ))}
        {groups.length === 0 && <p class="empty">{text.value ? 'Nothing found.' : 'Conversations appear here.'}</p>}
      </div>
      <div class="foot">
        <button type="button" onClick={() => (panel.value = 'models')}><Icon name="box" /> Models</button>
        <button type="button" onClick={() => (panel.value = 'compare')}><Icon name="columns" /> Compare</button>
        <div class="line">
          <button type="button" onClick={() => picker.current?.click()}>Import</button>
          <button type="button" onClick={() => void exportJson(conversations.value)}>Export all</button>
        </div>
        <label class="line theme">
          <span>Theme</span>
          <select value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value)}>
            <option value="system">System</option>
            <option value="light">Light</option>
            <option value="dark">Dark</option>
          </select>
        </label>
        <input ref={picker} id="import" type="file" accept="application/json,.json,text/markdown,.md,.markdown,.txt" hidden
               onChange={(event) => {
                 const file = event.currentTarget.files?.[0];
                 if (file) void importFile(file);
                 event.currentTarget.value = '';
               }} />
      </div>
    </nav>
  );
}

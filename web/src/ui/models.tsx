// The models window: those recommended for this machine, the installed ones, and all others, with search and order.
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import {
  cancelDownload, downloadModel, expectedSpeed, loadModel, parametersOf, removeModel, unloadModel,
} from '../models';
import { changeSettings, library, model, panel, refreshLibrary } from '../state';
import type { Download, LibraryModel } from '../types';
import { Dialog } from './dialog';
import { bytes, rate } from './format';

const kFitTexts: Record<string, string> = {
  fits: 'Fits', tight: 'Fits, but other programs are using the memory', too_large: 'Too large for this machine', 'too large': 'Too large for this machine',
  unknown: 'Memory use unknown until downloaded',
};

const isRunning = (download: Download | null | undefined) => download?.state === 'downloading' || download?.state === 'verifying';

function DownloadProgress({ download }: { download: Download }) {
  if (download.state === 'failed') {
    return (
      <div class="wrong" role="alert">
        <p>The download failed. Check the connection and download again: it resumes where it stopped.</p>
        <details><summary>Details</summary><p>{download.error}</p></details>
      </div>
    );
  }
  if (!isRunning(download)) return null;
  const total = download.download_total_bytes;
  const text = download.state === 'verifying' ? 'Verifying…' : total ? `${bytes(download.downloaded_bytes)} of ${bytes(total)}` : 'Connecting…';
  return (
    <div class="loading" role="status">
      <progress max={1} value={total ? download.downloaded_bytes / total : 0} aria-label={`Download of ${download.id}`} />
      <span>{text}</span>
      <button type="button" onClick={() => void cancelDownload(download.id)}>Cancel</button>
    </div>
  );
}

function Facts({ entry }: { entry: LibraryModel }) {
  const speed = expectedSpeed(entry);
  const facts = [
    entry.id, entry.parameters && `${entry.parameters} parameters`, entry.quantization, entry.size_bytes ? bytes(entry.size_bytes) : 'size unknown until downloaded',
    entry.license || 'license unknown', entry.release_date,
  ];
  return (
    <>
      <p class="faint">
        {facts.filter(Boolean).join(' · ')}
        {entry.homepage_url && <> · <a href={entry.homepage_url} target="_blank" rel="noopener noreferrer">About</a></>}
      </p>
      <p class="verdict">
        {kFitTexts[entry.fit] ?? entry.fit}
        {entry.required_bytes > 0 && `: needs ${entry.fit_source === 'exact' ? '' : 'about '}${bytes(entry.required_bytes)}`}
        {speed >= 0.1 && !entry.fit.startsWith('too') && <span class="speed" title="Estimated from the speed of your last answer">{` · about ${rate(speed)} here`}</span>}
      </p>
    </>
  );
}

interface ActionProps {
  entry: LibraryModel;
  run: (action: Promise<string>) => void;
}

function ModelActions({ entry, run }: ActionProps) {
  const isConfirming = useSignal(false);
  const isLoading = isRunning(library.value?.download) && library.value!.download!.id === entry.id;
  const load = async (keepOthers: boolean) => {
    const error = await loadModel(entry, keepOthers);
    const updated = library.value?.data.find((other) => other.id === entry.id);
    if (!error && updated?.served_as && !keepOthers) changeSettings({ model: updated.served_as });
    return error;
  };
  return (
    <div class="model-actions">
      {entry.activating && <span class="faint" role="status">Loading…</span>}
      {entry.installed && !entry.active && !entry.activating && (
        <>
          <button type="button" disabled={entry.fit !== 'fits'} title="Keep the loaded models too, for Compare" onClick={() => run(load(true))}>Load alongside</button>
          <button type="button" class="main" disabled={entry.fit.startsWith('too')} onClick={() => run(load(false))}>Load</button>
        </>
      )}
      {entry.active && entry.served_as !== model.value?.name && (
        <button type="button" title="Answer this conversation with it" onClick={() => changeSettings({ model: entry.served_as! })}>Use</button>
      )}
      {entry.active && <button type="button" title="Frees its memory; the file stays" onClick={() => run(unloadModel(entry))}>Unload</button>}
      {!entry.installed && !isLoading && <button type="button" onClick={() => run(downloadModel(entry.id))}>Download</button>}
      {entry.installed && entry.managed && !isConfirming.value && <button type="button" title="Deletes the file" onClick={() => (isConfirming.value = true)}>Remove</button>}
      {isConfirming.value && (
        <button type="button" class="danger" onClick={() => { isConfirming.value = false; run(removeModel(entry)); }}>
          {entry.active ? 'Unload and delete the file' : 'Delete the file'}
        </button>
      )}
    </div>
  );
}

function ModelEntry({ entry }: { entry: LibraryModel }) {
  const error = useSignal('');
  const download = library.value?.download?.id === entry.id ? library.value.download : null;
  const run = (action: Promise<string>) => {
    error.value = '';
    void action.then((text) => (error.value = text));
  };
  return (
    <li class={`model fit-${entry.fit.replace(' ', '_')}`} data-model={entry.id}>
      <div class="about">
        <strong>{entry.display_name}</strong>
        {entry.active && <span class="badge">loaded</span>}
        {entry.thinks && <span class="badge is-quiet" title="Can think before it answers">thinks</span>}
        <Facts entry={entry} />
        {download && <DownloadProgress download={download} />}
        {error.value && <p class="wrong" role="alert">{error.value}</p>}
      </div>
      <ModelActions entry={entry} run={run} />
    </li>
  );
}

const kOrders: Record<string, { label: string; compare: (a: LibraryModel, b: LibraryModel) => number }> = {
  newest: { label: 'Newest first', compare: (a, b) => (b.release_date ?? '').localeCompare(a.release_date ?? '') },
  small: { label: 'Smallest first', compare: (a, b) => (a.size_bytes || Infinity) - (b.size_bytes || Infinity) },
  fast: { label: 'Fastest first', compare: (a, b) => (parametersOf(a).active || Infinity) - (parametersOf(b).active || Infinity) },
  name: { label: 'By name', compare: (a, b) => a.display_name.localeCompare(b.display_name) },
};

const matches = (entry: LibraryModel, query: string) =>
  query.toLowerCase().split(/\s+/).every((word) =>
    [entry.id, entry.display_name, entry.family, entry.parameters, entry.license, entry.thinks ? 'thinks' : ''].join(' ').toLowerCase().includes(word));

// Downloads from a source that is not listed.
function SourceForm() {
  const source = useSignal('');
  const error = useSignal('');
  const download = library.value?.download;
  const isListed = library.value?.data.some((entry) => entry.id === download?.id);
  const status = useRef<HTMLDivElement>(null);
  const submit = async () => {
    error.value = '';
    error.value = await downloadModel(source.value.trim());
    requestAnimationFrame(() => status.current?.scrollIntoView({ block: 'nearest' })); // once it is rendered
  };
  return (
    <section class="source">
      <h3>From elsewhere</h3>
      <form class="line" onSubmit={(event) => { event.preventDefault(); void submit(); }}>
        <input aria-label="Source of a model" placeholder="hf:ORG/REPO:FILE, or the URL of a .gguf file" value={source.value}
               onInput={(event) => (source.value = event.currentTarget.value)} />
        <button type="submit" disabled={!source.value.trim()}>Download</button>
      </form>
      <div ref={status}>
        {error.value ? <p class="wrong" role="alert">{error.value}</p> : download && !isListed && <DownloadProgress download={download} />}
      </div>
    </section>
  );
}

function Section({ title, list, hint }: { title: string; list: LibraryModel[]; hint?: string }) {
  if (list.length === 0) return null;
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      {hint && <p class="hint">{hint}</p>}
      <ul class="models">{list.map((entry) => <ModelEntry key={entry.id} entry={entry} />)}</ul>
    </section>
  );
}

export function ModelsPanel() {
  const loadError = useSignal('');
  const query = useSignal('');
  const order = useSignal('newest');
  useEffect(() => {
    const refresh = () => refreshLibrary().then(() => (loadError.value = ''), (error: Error) => (loadError.value = error.message));
    void refresh();
    const timer = setInterval(() => {
      if (library.value?.activating || isRunning(library.value?.download)) void refresh();
    }, 500);
    return () => clearInterval(timer);
  }, []);
  const all = library.value?.data ?? [];
  const found = all.filter((entry) => matches(entry, query.value.trim())).sort(kOrders[order.value].compare);
  const installed = found.filter((entry) => entry.installed);
  const available = found.filter((entry) => !entry.installed);
  return (
    <Dialog title="Models" class="is-wide" onClose={() => (panel.value = null)}
            head={
              <div class="line filter">
                <input type="search" aria-label="Search models" placeholder="Search by name, family, size or license" value={query.value}
                       onInput={(event) => { query.value = event.currentTarget.value; event.currentTarget.closest('dialog')!.scrollTop = 0; }} />
                <select aria-label="Order" value={order.value} onChange={(event) => (order.value = event.currentTarget.value)}>
                  {Object.entries(kOrders).map(([name, { label }]) => <option key={name} value={name}>{label}</option>)}
                </select>
              </div>
            }>
      {loadError.value && <p class="wrong" role="alert">{loadError.value}</p>}
      {library.value && (
        <p class="hint">This machine has {bytes(library.value.memory_bytes)} of memory, {bytes(library.value.memory_available_bytes)} of it free.</p>
      )}
      <Section title="Recommended for this machine" list={available.filter((entry) => entry.recommended_for_chat)}
               hint="Recent models of this machine’s size: they fit in its memory." />
      <Section title="Installed" list={installed} />
      <Section title="All models" list={available.filter((entry) => !entry.recommended_for_chat)} />
      {library.value && found.length === 0 && <p class="empty">No model matches “{query.value}”.</p>}
      <SourceForm />
    </Dialog>
  );
}

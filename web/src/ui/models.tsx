// Installed and available models: fit, download progress, which one is loaded.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { call } from '../api';
import { changeSettings, library, model, panel, refreshLibrary, refreshProps, showToast } from '../state';
import type { Download, LibraryModel } from '../types';
import { Dialog } from './dialog';
import { bytes } from './format';

const kFitTexts: Record<string, string> = {
  fits: 'Fits', tight: 'Fits, but other programs are using the memory', too_large: 'Too large for this machine', 'too large': 'Too large for this machine',
  unknown: 'Memory use is known only after the download',
};

async function post(path: string, body: object): Promise<void> {
  try {
    await call(path, body);
  } catch (error) {
    showToast(error instanceof Error ? error.message : String(error));
  }
  await refreshLibrary().catch(() => undefined);
}

export async function activate(entry: LibraryModel, keepOthers: boolean): Promise<void> {
  const done = post('/v1/models/activate', { model: entry.id, keep_others: keepOthers });
  setTimeout(() => void refreshLibrary().catch(() => undefined), 150);
  await done;
  await refreshProps().catch(() => undefined);
  const updated = library.value?.data.find((other) => other.id === entry.id);
  if (updated?.served_as && !keepOthers) changeSettings({ model: updated.served_as });
}

function DownloadProgress({ download }: { download: Download }) {
  const fraction = download.download_total_bytes ? download.downloaded_bytes / download.download_total_bytes : 0;
  if (download.state === 'failed') return <p class="wrong">{download.error}</p>;
  if (download.state !== 'downloading' && download.state !== 'verifying') return null;
  return (
    <div class="loading" role="status">
      <progress max={1} value={fraction} aria-label={`Download of ${download.id}`} />
      <span>{download.state === 'verifying' ? 'Verifying' : `${bytes(download.downloaded_bytes)} of ${bytes(download.download_total_bytes)}`}</span>
      <button type="button" onClick={() => void post('/v1/models/cancel', { model: download.id })}>Cancel</button>
    </div>
  );
}

function ModelEntry({ entry }: { entry: LibraryModel }) {
  const isConfirming = useSignal(false);
  const download = library.value?.download?.id === entry.id ? library.value.download : null;
  const isLoading = download?.state === 'downloading' || download?.state === 'verifying';
  return (
    <li class={`model fit-${entry.fit.replace(' ', '_')}`} data-model={entry.id}>
      <div class="about">
        <strong>{entry.display_name}</strong>
        {entry.active && <span class="badge">active</span>}
        <p class="faint">
          {[entry.id, entry.parameters, entry.quantization, entry.size_bytes ? bytes(entry.size_bytes) : 'size unknown', entry.license || 'license unknown'].filter(Boolean).join(' · ')}
          {entry.homepage_url && <> · <a href={entry.homepage_url} target="_blank" rel="noopener noreferrer">About</a></>}
        </p>
        <p class="verdict">
          {kFitTexts[entry.fit] ?? entry.fit}
          {entry.required_bytes > 0 && `: needs ${entry.fit_source === 'exact' ? '' : 'about '}${bytes(entry.required_bytes)}`}
        </p>
        {download && <DownloadProgress download={download} />}
      </div>
      <div class="model-actions">
        {entry.activating && <span class="faint" role="status">Loading…</span>}
        {entry.installed && !entry.active && !entry.activating && (
          <>
            <button type="button" disabled={entry.fit !== 'fits'} title="Keep the loaded model too, for Compare" onClick={() => void activate(entry, true)}>Load alongside</button>
            <button type="button" class="main" disabled={entry.fit.startsWith('too')} onClick={() => void activate(entry, false)}>Activate</button>
          </>
        )}
        {entry.active && entry.served_as !== model.value?.name && (
          <button type="button" onClick={() => changeSettings({ model: entry.served_as! })}>Use in this conversation</button>
        )}
        {!entry.installed && !isLoading && <button type="button" onClick={() => void post('/v1/models/pull', { model: entry.id })}>Pull</button>}
        {entry.installed && entry.managed && !isConfirming.value && <button type="button" onClick={() => (isConfirming.value = true)}>Remove</button>}
        {isConfirming.value && (
          <button type="button" class="danger" onClick={() => { isConfirming.value = false; void post('/v1/models/remove', { model: entry.id, force: entry.active }).then(refreshProps); }}>
            {entry.active ? 'Unload and remove' : 'Confirm removal'}
          </button>
        )}
      </div>
    </li>
  );
}

export function ModelsPanel() {
  const source = useSignal('');
  const loadError = useSignal('');
  useEffect(() => {
    const refresh = () => refreshLibrary().then(() => (loadError.value = ''), (error: Error) => (loadError.value = error.message));
    void refresh();
    const timer = setInterval(() => {
      const state = library.value?.download?.state;
      if (library.value?.activating || state === 'downloading' || state === 'verifying') void refresh();
    }, 500);
    return () => clearInterval(timer);
  }, []);
  const list = library.value?.data ?? [];
  const installed = list.filter((entry) => entry.installed);
  const available = list.filter((entry) => !entry.installed);
  const download = library.value?.download;
  return (
    <Dialog title="Models" class="is-wide" onClose={() => (panel.value = null)}>
      {loadError.value && <p class="wrong" role="alert">{loadError.value}</p>}
      {library.value && (
        <p class="hint">This machine has {bytes(library.value.memory_bytes)} of memory, {bytes(library.value.memory_available_bytes)} of it free.</p>
      )}
      <h3>Installed</h3>
      <ul class="models">{installed.map((entry) => <ModelEntry key={entry.id} entry={entry} />)}</ul>
      <h3>Available</h3>
      <form class="line" onSubmit={(event) => { event.preventDefault(); void post('/v1/models/pull', { model: source.value.trim() }); }}>
        <input aria-label="Source of a model" placeholder="hf:ORG/REPO:FILE, or the URL of a .gguf file" value={source.value}
               onInput={(event) => (source.value = event.currentTarget.value)} />
        <button type="submit" disabled={!source.value.trim()}>Pull</button>
      </form>
      {download && !list.some((entry) => entry.id === download.id) && <DownloadProgress download={download} />}
      <ul class="models">{available.map((entry) => <ModelEntry key={entry.id} entry={entry} />)}</ul>
    </Dialog>
  );
}

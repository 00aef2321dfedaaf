// The models of this machine and those that can be had: whether they fit, how far a download is, which one answers.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { call } from '../api';
import { changeSettings, library, model, panel, refreshLibrary, refreshProps, say } from '../state';
import type { Download, LibraryModel } from '../types';
import { Dialog } from './dialog';
import { bytes } from './format';

const kVerdicts: Record<string, string> = {
  fits: 'Fits', tight: 'Fits, but memory is short now', too_large: 'Too large for this machine', 'too large': 'Too large for this machine',
  unknown: 'Whether it fits is known once it is here',
};

async function act(path: string, body: object): Promise<void> {
  try {
    await call(path, body);
  } catch (error) {
    say(error instanceof Error ? error.message : String(error));
  }
  await refreshLibrary().catch(() => undefined);
}

export async function activate(entry: LibraryModel, beside: boolean): Promise<void> {
  const done = act('/v1/models/activate', { model: entry.id, beside });
  setTimeout(() => void refreshLibrary().catch(() => undefined), 150);
  await done;
  await refreshProps().catch(() => undefined);
  const now = library.value?.data.find((other) => other.id === entry.id);
  if (now?.served_as && !beside) changeSettings({ model: now.served_as });
}

function Loading({ download }: { download: Download }) {
  const share = download.download_total_bytes ? download.downloaded_bytes / download.download_total_bytes : 0;
  if (download.state === 'failed') return <p class="wrong">{download.error}</p>;
  if (download.state !== 'downloading' && download.state !== 'verifying') return null;
  return (
    <div class="loading" role="status">
      <progress max={1} value={share} aria-label={`Download of ${download.id}`} />
      <span>{download.state === 'verifying' ? 'Verifying' : `${bytes(download.downloaded_bytes)} of ${bytes(download.download_total_bytes)}`}</span>
      <button type="button" onClick={() => void act('/v1/models/cancel', { model: download.id })}>Cancel</button>
    </div>
  );
}

function Entry({ entry }: { entry: LibraryModel }) {
  const isSure = useSignal(false);
  const download = library.value?.download?.id === entry.id ? library.value.download : null;
  const isLoading = download?.state === 'downloading' || download?.state === 'verifying';
  return (
    <li class={`model fit-${entry.fit.replace(' ', '_')}`} data-model={entry.id}>
      <div class="about">
        <strong>{entry.display_name}</strong>
        {entry.active && <span class="badge">active</span>}
        <p class="faint">
          {[entry.id, entry.parameters, entry.quantization, entry.size_bytes ? bytes(entry.size_bytes) : 'size unknown', entry.license || 'licence unknown'].filter(Boolean).join(' · ')}
          {entry.homepage_url && <> · <a href={entry.homepage_url} target="_blank" rel="noopener noreferrer">About</a></>}
        </p>
        <p class="verdict">
          {kVerdicts[entry.fit] ?? entry.fit}
          {entry.required_bytes > 0 && `: needs ${entry.fit_source === 'exact' ? '' : 'about '}${bytes(entry.required_bytes)}`}
        </p>
        {download && <Loading download={download} />}
      </div>
      <div class="acts">
        {entry.activating && <span class="faint" role="status">Loading…</span>}
        {entry.installed && !entry.active && !entry.activating && (
          <>
            <button type="button" disabled={entry.fit !== 'fits'} title="Keep what is loaded, for comparing" onClick={() => void activate(entry, true)}>Load beside</button>
            <button type="button" class="main" disabled={entry.fit.startsWith('too')} onClick={() => void activate(entry, false)}>Activate</button>
          </>
        )}
        {entry.active && entry.served_as !== model.value?.name && (
          <button type="button" onClick={() => changeSettings({ model: entry.served_as! })}>Use here</button>
        )}
        {!entry.installed && !isLoading && <button type="button" onClick={() => void act('/v1/models/pull', { model: entry.id })}>Pull</button>}
        {entry.installed && entry.managed && !isSure.value && <button type="button" onClick={() => (isSure.value = true)}>Remove</button>}
        {isSure.value && (
          <button type="button" class="danger" onClick={() => { isSure.value = false; void act('/v1/models/remove', { model: entry.id, force: entry.active }).then(refreshProps); }}>
            {entry.active ? 'Unload and remove' : 'Really remove'}
          </button>
        )}
      </div>
    </li>
  );
}

export function ModelsPanel() {
  const source = useSignal('');
  const failed = useSignal('');
  useEffect(() => {
    const look = () => refreshLibrary().then(() => (failed.value = ''), (error: Error) => (failed.value = error.message));
    void look();
    const timer = setInterval(() => {
      const state = library.value?.download?.state;
      if (library.value?.activating || state === 'downloading' || state === 'verifying') void look();
    }, 500);
    return () => clearInterval(timer);
  }, []);
  const list = library.value?.data ?? [];
  const here = list.filter((entry) => entry.installed);
  const elsewhere = list.filter((entry) => !entry.installed);
  const other = library.value?.download;
  return (
    <Dialog title="Models" class="is-wide" onClose={() => (panel.value = null)}>
      {failed.value && <p class="wrong" role="alert">{failed.value}</p>}
      {library.value && (
        <p class="hint">This machine has {bytes(library.value.memory_bytes)} of memory, {bytes(library.value.memory_available_bytes)} of it free.</p>
      )}
      <h3>On this machine</h3>
      <ul class="models">{here.map((entry) => <Entry key={entry.id} entry={entry} />)}</ul>
      <h3>Can be fetched</h3>
      <form class="line" onSubmit={(event) => { event.preventDefault(); void act('/v1/models/pull', { model: source.value.trim() }); }}>
        <input aria-label="Source of a model" placeholder="hf:ORG/REPO:FILE, or an address of a .gguf file" value={source.value}
               onInput={(event) => (source.value = event.currentTarget.value)} />
        <button type="submit" disabled={!source.value.trim()}>Pull</button>
      </form>
      {other && !list.some((entry) => entry.id === other.id) && <Loading download={other} />}
      <ul class="models">{elsewhere.map((entry) => <Entry key={entry.id} entry={entry} />)}</ul>
    </Dialog>
  );
}

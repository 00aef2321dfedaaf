import './style.css';
import { render } from 'preact';
import { loadAll } from './session';
import { openFromAddress, refreshProps, isServerUnreachable } from './state';
import { App } from './ui/app';
import { registerServiceWorker } from './workers';

const kServiceWorkerDelayMs = 1000; // after the first view

addEventListener('popstate', () => void openFromAddress());
refreshProps().catch(() => (isServerUnreachable.value = true));
void loadAll().then(() => {
  render(<App />, document.getElementById('page')!);
  setTimeout(registerServiceWorker, kServiceWorkerDelayMs);
});

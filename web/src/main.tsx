import './style.css';
import { render } from 'preact';
import { loadAll } from './session';
import { openFromAddress, refreshProps, serverIsGone } from './state';
import { App } from './ui/app';

addEventListener('popstate', () => void openFromAddress());
refreshProps().catch(() => (serverIsGone.value = true));
void loadAll().then(() => render(<App />, document.getElementById('page')!));

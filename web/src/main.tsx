import './style.css';
import { render } from 'preact';
import { loadAll, openFromAddress, refreshProps, serverIsGone } from './state';
import { App } from './ui/app';

addEventListener('popstate', () => void openFromAddress());
refreshProps().catch(() => (serverIsGone.value = true));
void loadAll().finally(() => render(<App />, document.getElementById('page')!));

// Human-readable numbers.
export const count = (n: number) => Math.round(n).toLocaleString('en-US');

export function bytes(n: number): string {
  if (!n) return '0 B';
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  const power = Math.min(Math.floor(Math.log10(n) / 3), units.length - 1);
  const value = n / 1000 ** power;
  return `${value >= 100 || power === 0 ? Math.round(value) : value.toFixed(1)} ${units[power]}`;
}

export function seconds(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

export function rate(perSecond: number): string {
  return `${perSecond >= 100 ? Math.round(perSecond) : perSecond.toFixed(1)} tok/s`;
}

export const plural = (n: number, word: string) => `${count(n)} ${word}${n === 1 ? '' : 's'}`;

const kDay = 86_400_000;
export function dateGroup(time: number): string {
  const today = new Date().setHours(0, 0, 0, 0);
  if (time >= today) return 'Today';
  if (time >= today - kDay) return 'Yesterday';
  if (time >= today - 7 * kDay) return 'Last seven days';
  return new Date(time).toLocaleDateString('en-US', { month: 'long', year: 'numeric' });
}

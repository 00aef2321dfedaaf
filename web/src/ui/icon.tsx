// Line icons on a 24 px grid.
const kPaths = {
  plus: 'M12 5v14M5 12h14',
  menu: 'M4 7h16M4 12h16M4 17h16',
  close: 'M6 6l12 12M18 6L6 18',
  send: 'M12 19V6M6 11.5 12 5.5l6 6',
  stop: 'M7.5 7.5h9v9h-9z',
  copy: 'M9 9h10v10H9zM5 15V5h10',
  refresh: 'M19 12a7 7 0 1 1-2.2-5.1M19 4v4h-4',
  edit: 'M5 19h3.5L18 9.5 14.5 6 5 15.5zM13 7.5 16.5 11',
  left: 'M14 6l-6 6 6 6',
  right: 'M10 6l6 6-6 6',
  down: 'M6 10l6 6 6-6',
  forward: 'M5 12h9M10 7l5 5-5 5M19 6v12',
  fold: 'M4.5 5.5h15v13h-15zM9.5 5.5v13',
  chart: 'M5 19V11M10 19V5M15 19v-6M20 19V8',
  trash: 'M5 7h14M10 7V5h4v2M7 7l1 12h8l1-12',
  gear: 'M4 8h9M17 8h3M4 16h3M11 16h9M15 5.5v5M9 13.5v5',
  box: 'M12 3.5 19.5 8v8L12 20.5 4.5 16V8zM4.5 8 12 12.3 19.5 8M12 12.3v8',
  columns: 'M4.5 5.5h15v13h-15zM12 5.5v13',
  file: 'M7 4h7l4 4v12H7zM14 4v4h4',
  clip: 'M8 12.5 14 6.5a3 3 0 0 1 4.3 4.3l-8 8a5 5 0 0 1-7-7L11 4',
  more: 'M6 12h.01M12 12h.01M18 12h.01',
  dice: 'M5 5h14v14H5zM9 9h.01M15 15h.01M15 9h.01M9 15h.01',
  help: 'M9.5 9.5a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.1.9-1.1 1.8M12 17h.01M12 3.5a8.5 8.5 0 1 1 0 17 8.5 8.5 0 0 1 0-17',
  search: 'M10.5 4.5a6 6 0 1 1 0 12 6 6 0 0 1 0-12M15 15l4.5 4.5',
};
export type IconName = keyof typeof kPaths;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={kPaths[name]} />
    </svg>
  );
}

interface ButtonProps {
  icon: IconName;
  label: string;
  onClick: () => void;
  class?: string;
  disabled?: boolean;
  pressed?: boolean;
  expanded?: boolean;
}

export function IconButton({ icon, label, onClick, class: name = '', disabled, pressed, expanded }: ButtonProps) {
  return (
    <button type="button" class={`quiet ${name}`} aria-label={label} title={label} disabled={disabled} aria-pressed={pressed}
            aria-expanded={expanded} onClick={onClick}>
      <Icon name={icon} />
    </button>
  );
}

// A button with a menu of actions, which closes after a choice, on Escape and on a click elsewhere.
import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { IconButton, type IconName } from './icon';

interface MenuProps {
  icon: IconName;
  label: string;
  class?: string; // of the button
  children: ComponentChildren; // buttons
}

export function Menu({ icon, label, class: name, children }: MenuProps) {
  const isOpen = useSignal(false);
  const menu = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!isOpen.value) return;
    menu.current?.querySelector('button')?.focus();
    const close = (event: Event) => {
      if (!menu.current?.parentElement?.contains(event.target as Node)) isOpen.value = false;
    };
    addEventListener('pointerdown', close);
    return () => removeEventListener('pointerdown', close);
  }, [isOpen.value]);
  return (
    <span class="menu-place">
      <IconButton icon={icon} label={label} class={name} expanded={isOpen.value} onClick={() => (isOpen.value = !isOpen.value)} />
      {isOpen.value && (
        <div class="menu" ref={menu} onClick={() => (isOpen.value = false)}
             onKeyDown={(event) => {
               if (event.key !== 'Escape') return;
               event.preventDefault();
               isOpen.value = false;
             }}>
          {children}
        </div>
      )}
    </span>
  );
}

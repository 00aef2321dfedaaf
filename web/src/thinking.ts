// Thinking: what the model can do, as GET /props says, and what a conversation has chosen.
import type { ModelProps, Settings, Thinking } from './types';

const kNone: Thinking = { kind: 'none', can_disable: false, efforts: [], default: 'off', budget: false };

export const thinkingOf = (model: ModelProps | null | undefined): Thinking => model?.thinking ?? kNone;

// The choices: off, on, or the efforts. Empty: there is nothing to choose.
export function thinkingChoices({ kind, can_disable, efforts }: Thinking): string[] {
  if (kind === 'effort') return can_disable ? ['off', ...efforts] : efforts;
  return kind === 'toggle' && can_disable ? ['off', 'on'] : [];
}

export function chosenThinking(thinking: Thinking, { thinking: isOn, effort }: Settings): string {
  if (isOn === false && thinking.can_disable) return 'off';
  if (effort && thinking.efforts.includes(effort)) return effort;
  return isOn && thinking.kind === 'toggle' ? 'on' : thinking.default;
}

// As settings; the default is left to the model.
export function settingsOfChoice(thinking: Thinking, choice: string): Pick<Settings, 'thinking' | 'effort'> {
  if (choice === thinking.default) return { thinking: undefined, effort: undefined };
  if (choice === 'off') return { thinking: false, effort: undefined };
  return choice === 'on' ? { thinking: true, effort: undefined } : { thinking: undefined, effort: choice };
}

// The stored data: a conversation is a tree of messages, of which one path is displayed.
import type { ChatCompletionsRequest } from './api_types';

export type Role = 'user' | 'assistant' | 'tool';

export interface Attachment {
  name: string;
  text: string;
}

export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

// A token of an answer with its probability and alternatives.
export interface TokenChoice {
  text: string;
  p: number;
  top: { text: string; p: number }[];
}

export interface Timings {
  queued_ms: number;
  prompt_n: number;
  prompt_ms: number;
  prompt_per_second: number;
  predicted_n: number;
  predicted_ms: number;
  predicted_per_second: number;
  cache_n: number;
  cache_miss: string;
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details?: { cached_tokens: number };
  completion_tokens_details?: { reasoning_tokens: number };
}

export type NoticeKind = 'length' | 'context' | 'stopped' | 'empty' | 'lost' | 'model' | 'error';
export interface Notice {
  kind: NoticeKind;
  text: string;
}

export interface Message {
  id: string;
  conversation: string;
  parent: string | null;
  role: Role;
  content: string;
  created: number;
  reasoning?: string;
  reasoningMs?: number;
  reasoningTokens?: number;
  attachments?: Attachment[];
  toolCalls?: ToolCall[];
  toolCallId?: string; // of a tool's result
  model?: string;
  timings?: Timings;
  usage?: Usage;
  tokens?: TokenChoice[]; // of the content, if probabilities were requested; stored separately, loaded on demand
  hasTokens?: boolean; // tokens are stored
  edited?: boolean; // an answer that the user changed
  finish?: string; // finish reason
  notice?: Notice;
  side?: string; // of Compare
  writing?: boolean; // the answer is streaming; if set at load, it was interrupted
}

// Empty means: the server's default.
type RequestSettings = Pick<
  ChatCompletionsRequest,
  | 'model' | 'temperature' | 'top_p' | 'top_k' | 'min_p' | 'repeat_penalty' | 'frequency_penalty' | 'presence_penalty' | 'seed'
  | 'max_tokens' | 'thinking_budget'
>;
export interface Settings extends RequestSettings {
  system?: string;
  thinking?: boolean; // absent: the model's default
  effort?: string; // of thinking, for models that have several
  probabilities?: boolean;
  tools?: string; // JSON in the format of the API
  invalidTools?: string; // input that is not valid JSON yet
}

export interface Draft {
  text: string;
  attachments: Attachment[];
  at?: number; // when it was last changed
}

export interface Conversation {
  id: string;
  title: string;
  created: number;
  updated: number;
  head: string | null; // the last message of the displayed path
  settings: Settings;
  context?: ContextCut;
}

// The user's choice when the conversation exceeds the context: earlier messages stay visible but are not sent.
export interface ContextCut {
  from: string; // the first message that is sent
  summary?: string; // of the earlier ones, sent instead
}

// How a model thinks. `default`: on, off or one of the efforts.
export interface Thinking {
  kind: 'none' | 'toggle' | 'effort';
  can_disable: boolean;
  efforts: string[];
  default: string;
  budget: boolean; // the number of thinking tokens can be limited
}

export interface ModelProps {
  name: string;
  context: number;
  weight_bytes: number;
  cache_bytes: number;
  supports_tools: boolean;
  supports_system: boolean;
  thinking: Thinking;
  backend?: string;
  architecture?: string;
  // Sampling recommended by the model's authors, and its source. Used for settings left empty.
  recommended_sampling?: Record<string, number | string>;
}

export interface Props {
  build: { version?: string };
  models: ModelProps[];
  default_sampling: Record<string, number>;
  key_required: boolean;
}

export interface Figures {
  weight_bytes: number;
  cache_bytes: number;
  cache_active_bytes: number;
  cache_kept_bytes: number;
  context_tokens: number;
  active_requests: number;
  queued_requests: number;
  prompt_tokens: number;
  prompt_tokens_cached: number;
  generated_tokens: number;
}

export interface Download {
  id: string;
  state: 'idle' | 'downloading' | 'verifying' | 'installed' | 'cancelled' | 'failed';
  downloaded_bytes: number;
  download_total_bytes: number;
  error?: string;
}

export interface LibraryModel {
  id: string;
  display_name: string;
  homepage_url: string;
  family: string;
  parameters: string;
  quantization: string;
  license: string;
  size_bytes: number;
  installed: boolean;
  managed: boolean;
  active: boolean;
  served_as: string | null;
  fit: 'fits' | 'tight' | 'too large' | 'too_large' | 'unknown';
  required_bytes: number;
  fit_source: 'exact' | 'catalog';
  status: string;
  thinks: boolean;
  release_date: string | null;
  fits_gpu: boolean | null;
  recommended_for_chat: boolean;
  activating: boolean;
}

export interface Library {
  memory_bytes: number;
  memory_available_bytes: number;
  activating: string;
  download: Download | null;
  data: LibraryModel[];
}

export interface Progress {
  total: number;
  cache: number;
  processed: number;
}

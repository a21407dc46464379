/** The server's latency records, and how one reads for people. */

/** A record of `specComplete/telemetry`; `spec-complete stats --schema` documents every field. */
export interface RequestRecord {
  readonly kind: 'request';
  readonly id: string;
  readonly route: string;
  readonly reason: string;
  readonly total_ms: number;
  readonly ttft_ms: number;
  readonly forwards: number;
  readonly committed: number;
  readonly drafted: number;
  readonly accepted: number;
  readonly reused_tokens: number;
  readonly new_tokens: number;
  readonly characters: number;
}

export type TelemetryRecord = RequestRecord | { readonly kind: 'outcome' | 'costs' };

/** Normal while typing: no line of their own. */
const UNREMARKABLE = new Set(['superseded', 'cancelled']);

/** One readable latency line; the same words as the server's own summary. */
export function summary(record: RequestRecord): string {
  let line = `${record.route} ${record.total_ms.toFixed(0)} ms`;
  if (record.reason) {
    line += ` (${record.reason})`;
  }
  if (record.forwards > 0) {
    line +=
      `: first token ${record.ttft_ms.toFixed(0)} ms, ${record.committed} tokens in ${record.forwards} passes` +
      ` (${(record.committed / record.forwards).toFixed(1)} a pass), drafts ${record.accepted}/${record.drafted}` +
      ` accepted, prompt ${record.reused_tokens} reused + ${record.new_tokens} new`;
  }
  return line;
}

/** Whether a record gets a line in the log. */
export function isWorthALine(record: TelemetryRecord): record is RequestRecord {
  return record.kind === 'request' && !UNREMARKABLE.has(record.reason);
}

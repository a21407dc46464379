/** The language client: what VS Code does not do by itself is done in its middleware. */

import * as vscode from 'vscode';
import { LanguageClient, RevealOutputChannelOn, TransportKind } from 'vscode-languageclient/node';
import { createErrorHandler } from './recovery';
import { serveArguments } from './server';
import type { ServerStatus } from './status';
import type { TelemetryRecord } from './telemetry';

/** What the client tells the rest of the extension. */
export interface Listener {
  onStatus(status: ServerStatus): void;
  onTelemetry(record: TelemetryRecord): void;
  /** The server ended too often. */
  onGivenUp(message: string): void;
  isPaused(): boolean;
}

// `output:`, `git:` and the like are never sent to the server
const SCHEMES = ['file', 'untitled', 'vscode-notebook-cell', 'vscode-remote', 'vscode-vfs'];

const TRIGGER = 'editor.action.inlineSuggest.trigger';

/**
 * Lets an item begin at the cursor instead of the line's start. VS Code 1.100 does not show one whose range covers a
 * character outside the basic plane, such as an emoji before the cursor.
 */
function fromCursor(
  item: vscode.InlineCompletionItem,
  document: vscode.TextDocument,
  position: vscode.Position,
): vscode.InlineCompletionItem {
  if (typeof item.insertText !== 'string' || !item.range?.contains(position)) {
    return item;
  }
  const typed = document.getText(new vscode.Range(item.range.start, position));
  if (!item.insertText.startsWith(typed)) {
    return item;
  }
  const shorter = new vscode.InlineCompletionItem(
    item.insertText.slice(typed.length),
    new vscode.Range(position, item.range.end),
    item.command,
  );
  if (item.filterText?.startsWith(typed)) {
    shorter.filterText = item.filterText.slice(typed.length);
  }
  return shorter;
}

/** Settings for this client alone, which the server does not know. */
function withoutOwn(settings: unknown): unknown {
  if (typeof settings !== 'object' || settings === null) {
    return settings;
  }
  const { server: _server, ...rest } = settings as Record<string, unknown>;
  return rest;
}

export function createClient(program: string, log: vscode.LogOutputChannel, listener: Listener): LanguageClient {
  let askingAgain = false;
  const client = new LanguageClient(
    'specComplete',
    'Spec Complete',
    { command: program, args: serveArguments(), transport: TransportKind.stdio },
    {
      documentSelector: SCHEMES.map((scheme) => ({ scheme })),
      outputChannel: log,
      initializationOptions: { telemetry: true, moreAvailable: true, status: true },
      // no pop-up per failure: the log has them, the status bar tells the state
      revealOutputChannelOn: RevealOutputChannelOn.Never,
      errorHandler: createErrorHandler((message) => listener.onGivenUp(message)),
      middleware: {
        provideInlineCompletionItems: async (document, position, context, token, next) => {
          if (listener.isPaused()) {
            return [];
          }
          // our own asking again counts as automatic, though VS Code calls it the user's wish
          const kind = askingAgain ? vscode.InlineCompletionTriggerKind.Automatic : context.triggerKind;
          askingAgain = false;
          const answer = await next(document, position, { ...context, triggerKind: kind }, token);
          if (!answer || context.selectedCompletionInfo) {
            return answer; // what goes with a selected entry must keep its range
          }
          const items = Array.isArray(answer) ? answer : answer.items;
          return items.map((item) => fromCursor(item, document, position));
        },
        workspace: {
          configuration: async (params, token, next) => {
            const values = await next(params, token);
            return Array.isArray(values) ? values.map(withoutOwn) : values;
          },
        },
      },
    },
  );
  client.onNotification('specComplete/status', (status: ServerStatus) => listener.onStatus(status));
  client.onNotification('specComplete/telemetry', (record: TelemetryRecord) => listener.onTelemetry(record));
  client.onNotification('specComplete/moreAvailable', async ({ uri }: { uri: string }) => {
    const editor = vscode.window.activeTextEditor;
    if (editor && client.code2ProtocolConverter.asUri(editor.document.uri) === uri) {
      askingAgain = true;
      await vscode.commands.executeCommand(TRIGGER);
      askingAgain = false;
    }
  });
  return client;
}

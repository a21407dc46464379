/** The language client: what VS Code does not do by itself is done in its middleware. */

import * as vscode from 'vscode';
import { LanguageClient, TransportKind } from 'vscode-languageclient/node';
import { serveArguments } from './server';
import type { ServerStatus } from './status';
import type { TelemetryRecord } from './telemetry';

/** What the client tells the rest of the extension. */
export interface Listener {
  onStatus(status: ServerStatus): void;
  onTelemetry(record: TelemetryRecord): void;
  isPaused(): boolean;
}

// `output:`, `git:` and the like are never sent to the server
const SCHEMES = ['file', 'untitled', 'vscode-notebook-cell', 'vscode-remote', 'vscode-vfs'];

const TRIGGER = 'editor.action.inlineSuggest.trigger';

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
      connectionOptions: { maxRestartCount: 5 },
      middleware: {
        provideInlineCompletionItems: (document, position, context, token, next) => {
          if (listener.isPaused()) {
            return [];
          }
          if (askingAgain) {
            // our own asking again counts as automatic, though VS Code calls it the user's wish
            askingAgain = false;
            return next(
              document,
              position,
              { ...context, triggerKind: vscode.InlineCompletionTriggerKind.Automatic },
              token,
            );
          }
          return next(document, position, context, token);
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

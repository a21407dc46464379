// Writes the settings page of package.json from the server's own schema:
//   spec-complete settings --schema | node scripts/settings.mjs
import { readFileSync, writeFileSync } from 'node:fs';

const manifestFile = new URL('../package.json', import.meta.url);
const schema = JSON.parse(readFileSync(0, 'utf8'));
const manifest = JSON.parse(readFileSync(manifestFile, 'utf8'));

// what differs here, and why
const defaults = {
  deadlineMs: 300, // this extension asks again when an answer goes on behind its deadline
  clientDebounceMs: 50, // what VS Code itself waits before it asks
};
// read by the process that all windows share, when it starts
const machine = [
  'model', 'device', 'engine', 'dtype', 'telemetryLog', 'prometheusPort', 'otlpEndpoint', 'trace', 'idleExitMinutes',
];

const properties = {
  'specComplete.server.command': {
    type: 'array',
    items: { type: 'string' },
    default: [],
    markdownDescription:
      'Command that starts the server, with its arguments; empty: `spec-complete serve`, from PATH or from the environment that this extension made.',
    scope: 'machine-overridable',
  },
};
for (const [name, { description, ...row }] of Object.entries(schema.properties)) {
  properties[`specComplete.${name}`] = {
    ...row,
    ...(name in defaults ? { default: defaults[name] } : {}),
    markdownDescription: description,
    scope: machine.includes(name) ? 'machine-overridable' : 'window',
  };
}
manifest.contributes.configuration.properties = properties;
manifest.capabilities.untrustedWorkspaces.restrictedConfigurations = [
  'specComplete.server.command',
  ...machine.map((name) => `specComplete.${name}`),
  'specComplete.secretPatterns',
];
writeFileSync(manifestFile, JSON.stringify(manifest, null, 2) + '\n');

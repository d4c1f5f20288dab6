export function serversFolder(env?: NodeJS.ProcessEnv): string

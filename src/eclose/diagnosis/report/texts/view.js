/* Requests of a page that eclose view serves. A page from a file does not have this function. */
async function ask(path) {
  const reply = await fetch(path);
  if (!reply.ok) throw new Error(reply.status);
  return reply;
}

'use strict';
const $ = id => document.getElementById(id);

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function trouble(message) {
  $('trouble').hidden = !message;
  $('trouble-text').textContent = message || '';
}

async function fetched(path, body) {
  let reply;
  try {
    reply = await fetch(path, body && {
      method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)});
  } catch (error) {
    throw new Error('The server does not answer: start it again.');
  }
  const answer = await reply.json();
  if (!reply.ok) throw new Error(answer.error);
  return answer;
}

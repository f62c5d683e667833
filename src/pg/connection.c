/* pg/connection.c - connecting to the engine and naming models to it. */
#include "postgres.h"

#include "pg/connection.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "miscadmin.h"
#include "pg/shmem.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "wire/frame.h"

/* Handles are reused round robin: LOAD is sent again when a handle has changed its meaning, right
 * before the request that names it, so requests in flight do not mind. */
#define N_HANDLES 16

typedef struct Handle
{
	char *key;     /* [n] packed ModelSpec in TopMemoryContext, NULL = free */
	Size n;        /* bytes */
	bool declared; /* on this connection */
} Handle;

static LlmLink stream = {.fd = -1};
static LlmConnectionState state = LLM_CONNECTION_CLOSED;
static Handle handles[N_HANDLES];
static int next_handle = 0;
static uint64 connection_number = 0; /* this backend's, over all its connections */
static char refusal[256];

LlmConnectionState
llm_connection_state(void)
{
	return state;
}

LlmLink *
llm_connection_link(void)
{
	return &stream;
}

static void
append_hello(uint64 cookie)
{
	Llm__Hello hello = LLM__HELLO__INIT;
	Llm__Frame frame = LLM__FRAME__INIT;

	hello.version = LLM_WIRE_VERSION;
	hello.cookie = cookie;
	hello.connection = connection_number;
	hello.has_pid = true;
	hello.pid = (uint32) MyProcPid;
	frame.body_case = LLM__FRAME__BODY_HELLO;
	frame.hello = &hello;
	llm_link_append(&stream, &frame);
}

/* A connected socket, or -1 when nobody listens or the backlog is full. */
static int
connect_socket(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd;

	if (!AcquireExternalFD())
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_RESOURCES),
						errmsg("no file descriptor is free for the connection to the engine"),
						errhint("Increase max_files_per_process.")));
	strlcpy(addr.sun_path, LLM_SOCKET_PATH, sizeof(addr.sun_path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *) &addr, sizeof(addr)) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	ReleaseExternalFD();
	return -1;
}

bool
llm_connection_open(void)
{
	LlmEngineStatus status;

	Assert(state == LLM_CONNECTION_CLOSED);
	llm_shmem_status(&status);
	if (status.cookie == 0)
		return false;
	if (connection_number == 0 && !pg_strong_random(&connection_number, sizeof(connection_number)))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not draw random bytes")));
	/* What can fail for memory comes before the descriptor. */
	llm_link_open(&stream, -1, TopMemoryContext);
	append_hello(status.cookie);
	stream.fd = connect_socket();
	if (stream.fd < 0)
	{
		llm_link_close(&stream);
		return false;
	}
	state = LLM_CONNECTION_GREETING;
	return true;
}

bool
llm_connection_welcome(const Llm__Welcome *welcome)
{
	if (welcome->version != LLM_WIRE_VERSION)
	{
		llm_connection_refused("The engine speaks another version of the protocol.");
		return false;
	}
	state = LLM_CONNECTION_READY;
	refusal[0] = '\0';
	return true;
}

void
llm_connection_close(void)
{
	if (state == LLM_CONNECTION_CLOSED)
		return;
	llm_link_close(&stream);
	ReleaseExternalFD();
	state = LLM_CONNECTION_CLOSED;
	for (int i = 0; i < N_HANDLES; i++)
		handles[i].declared = false;
}

void
llm_connection_refused(const char *why)
{
	strlcpy(refusal, why, sizeof(refusal));
}

const char *
llm_connection_refusal(void)
{
	return refusal;
}

/* The handle of a packed spec: the one that has it, else the next in turn. */
static Handle *
find_handle(const uint8 *key, Size n)
{
	Handle *h;

	for (int i = 0; i < N_HANDLES; i++)
		if (handles[i].key && handles[i].n == n && memcmp(handles[i].key, key, n) == 0)
			return &handles[i];
	h = &handles[next_handle];
	next_handle = (next_handle + 1) % N_HANDLES;
	if (h->key)
		pfree(h->key);
	*h = (Handle){.key = NULL};
	h->key = MemoryContextAlloc(TopMemoryContext, n);
	h->n = n;
	memcpy(h->key, key, n);
	return h;
}

uint32
llm_connection_model(LlmModel *model)
{
	Handle *h = find_handle(model->key, model->n_key);
	uint32 number = (uint32) (h - handles);

	if (!h->declared)
	{
		Llm__Load load = LLM__LOAD__INIT;
		Llm__Frame frame = LLM__FRAME__INIT;

		load.model = number;
		load.spec = &model->spec;
		frame.body_case = LLM__FRAME__BODY_LOAD;
		frame.load = &load;
		llm_link_append(&stream, &frame);
		h->declared = true;
	}
	return number;
}

/* The listening socket: "HOST:PORT" or "[IPV6]:PORT" to a bound file descriptor and its URL. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/http_private.h"

/* Splits "HOST:PORT"; brackets around an IPv6 address are taken off. */
static err_code split_address(const char *address, char host[256], char port[16], struct err *e)
{
	const char *colon = strrchr(address, ':');
	size_t len = colon ? (size_t)(colon - address) : 0;
	bool bracketed = len >= 2 && address[0] == '[' && colon[-1] == ']';

	if (!colon || !len || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1))
		return err_set(e, ERR_INPUT, "'%.200s' is not HOST:PORT or [IPV6]:PORT", address);
	if (bracketed) {
		address++;
		len -= 2;
	} else if (memchr(address, ':', len)) {
		return err_set(e, ERR_INPUT, "'%.200s': an IPv6 address needs brackets: [::1]:8080", address);
	}
	if (strlen(colon + 1) > 5 || strtoul(colon + 1, NULL, 10) > 65535)
		return err_set(e, ERR_INPUT, "'%.200s': a port is a number from 0 to 65535", address);
	if (!len || len > 255)
		return err_set(e, ERR_INPUT, "'%.200s': a host of %zu characters", address, len);
	snprintf(host, 256, "%.*s", (int)len, address);
	snprintf(port, 16, "%s", colon + 1);
	return ERR_OK;
}

static int bind_and_listen(const struct addrinfo *a)
{
	int one = 1, zero = 0, saved;
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one))
		goto fail;
	if (a->ai_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero))
		goto fail;
	if (!bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, SOMAXCONN))
		return fd;
fail:
	saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

/* What the socket is bound to, as a URL: the port may have been 0. */
static err_code describe_socket(int fd, char *url, size_t size, bool *loopback, struct err *e)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
		struct sockaddr_storage storage;
	} a = {0};
	socklen_t len = sizeof a;
	char host[NI_MAXHOST], port[16];

	if (getsockname(fd, &a.any, &len))
		return err_errno(e, "getsockname");
	if (getnameinfo(&a.any, len, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV))
		return err_set(e, ERR_IO, "getnameinfo failed");
	if (a.any.sa_family == AF_INET6) {
		*loopback = IN6_IS_ADDR_LOOPBACK(&a.v6.sin6_addr);
		snprintf(url, size, "http://[%s]:%s", host, port);
	} else {
		*loopback = ntohl(a.v4.sin_addr.s_addr) >> 24 == 127;
		snprintf(url, size, "http://%s:%s", host, port);
	}
	return ERR_OK;
}

err_code http_listen(const char *address, int *fd, char *url, size_t url_size, bool *loopback, struct err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	struct addrinfo *list = NULL;
	char host[256], port[16];
	int rc, s = -1;

	if (split_address(address, host, port, e))
		return e->code;
	rc = getaddrinfo(host, port, &hints, &list);
	if (rc)
		return err_set(e, ERR_INPUT, "cannot listen on %s: %s", address, gai_strerror(rc));
	for (const struct addrinfo *a = list; a && s < 0; a = a->ai_next)
		s = bind_and_listen(a);
	if (s < 0)
		err_errno(e, "cannot listen on %s", address);
	freeaddrinfo(list);
	if (s < 0)
		return e->code;
	if (describe_socket(s, url, url_size, loopback, e)) {
		close(s);
		return e->code;
	}
	*fd = s;
	return ERR_OK;
}

/* Where systems keep the certificates of authorities; see certificates.h. */
#include "towers/remote/certificates.h"

#include <unistd.h>

const char *certificates_find(const char *usual)
{
    static const char *const places[] = {
        "/etc/ssl/certs/ca-certificates.crt", /* Debian, Ubuntu, Arch, Gentoo */
        "/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora, RHEL */
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/ssl/ca-bundle.pem", /* openSUSE */
        "/etc/ssl/cert.pem",      /* Alpine */
    };
    if (!usual || access(usual, R_OK) == 0) return usual;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (access(places[i], R_OK) == 0) return places[i];
    return NULL;
}
